//! The exported functions, with the signatures and layouts of `nvml.h`.
use crate::{
    code::{Code, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED},
    library::{self, Handle, begin, begin_for, handle_of},
    state::{Kind, Mig},
};
use std::ffi::{CStr, c_char, c_int};

/// `NVML_VALUE_NOT_AVAILABLE`, and the id of no instance.
const NOT_AVAILABLE: u64 = u64::MAX;
const NO_INSTANCE: u32 = u32::MAX;
/// So many places for instances has a card that is cut up.
const MAX_INSTANCES: u32 = 7;

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct Memory {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_t` of the third version: 24 bytes.
#[repr(C)]
struct ProcessInfo {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

const _: () = assert!(size_of::<ProcessInfo>() == 24 && size_of::<Memory>() == 40 && size_of::<Pci>() == 68);

/// `nvmlUtilization_t`.
#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct Pci {
    bus_id_legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [u8; 32],
}

/// Writes an answer.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text and the zero behind it.
///
/// # Safety
/// `to` is null or `length` bytes of it may be written.
unsafe fn put_text(to: *mut c_char, length: u32, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if u32::try_from(text.len()).unwrap_or(u32::MAX) >= length {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: text and zero fit into `length`, and the caller's promise.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.cast::<u8>().add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    library::initialise().into()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: u32) -> Code {
    library::initialise().into()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Code {
    library::shut_down().into()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    code.text().as_ptr()
}

// SAFETY of the functions below, by NVML's contract: pointers are null or writable for what they point to, texts for
// the length beside them.

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, length: u32) -> Code {
    // SAFETY: NVML's contract.
    begin("driver").and_then(|state| unsafe { put_text(to, length, &state.driver) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(to: *mut c_char, length: u32) -> Code {
    // SAFETY: NVML's contract.
    begin("nvml").and_then(|state| unsafe { put_text(to, length, &format!("12.{}", state.driver)) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> Code {
    // SAFETY: NVML's contract.
    begin("cuda").and_then(|state| unsafe { put(to, state.cuda) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut u32) -> Code {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    // SAFETY: NVML's contract.
    begin("count").and_then(|state| unsafe { put(to, count(state.enumerated().len())) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, to: *mut Handle) -> Code {
    let handle = || {
        let state = begin("nvmlDeviceGetHandleByIndex_v2")?;
        let devices = state.enumerated();
        let device = usize::try_from(index).ok().and_then(|index| devices.get(index)).ok_or(INVALID_ARGUMENT)?;
        handle_of(&state, "nvmlDeviceGetHandleByIndex_v2", &device.uuid)
    };
    // SAFETY: NVML's contract.
    handle().and_then(|handle| unsafe { put(to, handle) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Handle) -> Code {
    let handle = || {
        let state = begin("nvmlDeviceGetHandleByUUID")?;
        if uuid.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: NVML's contract: a C string.
        let uuid = unsafe { CStr::from_ptr(uuid) }.to_str().map_err(|_| INVALID_ARGUMENT)?;
        handle_of(&state, "nvmlDeviceGetHandleByUUID", uuid)
    };
    // SAFETY: NVML's contract.
    handle().and_then(|handle| unsafe { put(to, handle) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(handle: Handle, to: *mut u32) -> Code {
    let index = || {
        let (state, device) = begin_for("nvmlDeviceGetIndex", handle)?;
        let place = state.enumerated().iter().position(|one| one.uuid == device.uuid).ok_or(NOT_FOUND)?;
        u32::try_from(place).map_err(|_| INVALID_ARGUMENT)
    };
    // SAFETY: NVML's contract.
    index().and_then(|index| unsafe { put(to, index) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(handle: Handle, to: *mut c_char, length: u32) -> Code {
    // SAFETY: NVML's contract.
    begin_for("nvmlDeviceGetUUID", handle).and_then(|(_, device)| unsafe { put_text(to, length, &device.uuid) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(handle: Handle, to: *mut c_char, length: u32) -> Code {
    // SAFETY: NVML's contract.
    begin_for("nvmlDeviceGetName", handle).and_then(|(_, device)| unsafe { put_text(to, length, &device.name) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(handle: Handle, to: *mut Pci) -> Code {
    let pci = || {
        let (_, device) = begin_for("nvmlDeviceGetPciInfo_v3", handle)?;
        let mut bus_id = [0; 32];
        // One byte stays zero: the end of the text.
        let text = device.pci.as_bytes();
        bus_id[..31].get_mut(..text.len()).ok_or(INSUFFICIENT_SIZE)?.copy_from_slice(text);
        Ok(Pci { bus_id_legacy: [0; 16], domain: 0, bus: 0, device: 0, device_id: 0, subsystem_id: 0, bus_id })
    };
    // SAFETY: NVML's contract.
    pci().and_then(|pci| unsafe { put(to, pci) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, to: *mut Memory) -> Code {
    let memory = || {
        let (state, device) = begin_for("nvmlDeviceGetMemoryInfo_v2", handle)?;
        let used = library::used(&state, &device);
        let free = device.total.saturating_sub(device.reserved).saturating_sub(used);
        let version = 0x0200_0028;
        Ok(Memory { version, total: device.total, reserved: device.reserved, free, used })
    };
    // SAFETY: NVML's contract.
    memory().and_then(|memory| unsafe { put(to, memory) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(handle: Handle, to: *mut Utilization) -> Code {
    let idle = Utilization { gpu: 0, memory: 0 };
    // SAFETY: NVML's contract.
    begin_for("nvmlDeviceGetUtilizationRates", handle).and_then(|_| unsafe { put(to, idle) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(handle: Handle, current: *mut u32, pending: *mut u32) -> Code {
    let mode = || {
        let (_, device) = begin_for("nvmlDeviceGetMigMode", handle)?;
        let mode = match device.mig {
            Mig::None => return Err(NOT_SUPPORTED),
            Mig::Off => 0,
            Mig::On => 1,
        };
        // SAFETY: NVML's contract.
        unsafe { put(current, mode).and_then(|()| put(pending, mode)) }
    };
    mode().into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(handle: Handle, to: *mut u32) -> Code {
    let count = || match begin_for("nvmlDeviceGetMaxMigDeviceCount", handle)?.1.mig {
        Mig::On => Ok(MAX_INSTANCES),
        Mig::Off | Mig::None => Ok(0),
    };
    // SAFETY: NVML's contract.
    count().and_then(|count| unsafe { put(to, count) }).into()
}

/// An instance keeps its place when one before it goes; here every second place is empty.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, index: u32, to: *mut Handle) -> Code {
    const NAME: &str = "nvmlDeviceGetMigDeviceHandleByIndex";
    let instance = || {
        let (state, card) = begin_for(NAME, handle)?;
        if index >= MAX_INSTANCES {
            return Err(INVALID_ARGUMENT);
        }
        let place = usize::try_from(index).map_err(|_| INVALID_ARGUMENT)?;
        let instances = state.instances(&card);
        let instance = instances.get(place / 2).filter(|_| place % 2 == 1).ok_or(NOT_FOUND)?;
        handle_of(&state, NAME, &instance.uuid)
    };
    // SAFETY: NVML's contract.
    instance().and_then(|handle| unsafe { put(to, handle) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: Handle,
    count: *mut u32,
    to: *mut ProcessInfo,
) -> Code {
    let list = begin_for("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        .map(|(state, device)| library::processes(&state, &device, Kind::Compute));
    // SAFETY: NVML's contract.
    list.and_then(|list| unsafe { put_processes(&list, count, to) }).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    handle: Handle,
    count: *mut u32,
    to: *mut ProcessInfo,
) -> Code {
    let list = begin_for("nvmlDeviceGetGraphicsRunningProcesses_v3", handle)
        .map(|(state, device)| library::processes(&state, &device, Kind::Graphics));
    // SAFETY: NVML's contract.
    list.and_then(|list| unsafe { put_processes(&list, count, to) }).into()
}

/// Writes the list if it fits, its length in any case.
///
/// # Safety
/// `count` may be read and written; `to` is null or may be written `*count` times.
unsafe fn put_processes(list: &[crate::state::Process], count: *mut u32, to: *mut ProcessInfo) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    let length = u32::try_from(list.len()).map_err(|_| INVALID_ARGUMENT)?;
    // SAFETY: not null, and the caller's promise.
    let room = unsafe { count.replace(length) };
    if length > room || (to.is_null() && length > 0) {
        return Err(INSUFFICIENT_SIZE);
    }
    for (place, process) in list.iter().enumerate() {
        let entry = ProcessInfo {
            pid: process.pid,
            used: process.bytes.unwrap_or(NOT_AVAILABLE),
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        };
        // SAFETY: not null, and `place` lies below the room that the caller gave.
        unsafe { to.add(place).write(entry) };
    }
    Ok(())
}
