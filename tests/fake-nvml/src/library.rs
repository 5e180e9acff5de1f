//! What every function does first: find the file, read it, hang or fail as it says, resolve the handle.
use crate::{
    claims,
    code::{Code, GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, UNINITIALIZED, UNKNOWN},
    state::{Device, Kind, Process, State},
};
use std::{
    ffi::{CStr, OsStr, OsString, c_char, c_int, c_void},
    fs,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

static N_INITIALISED: AtomicU32 = AtomicU32::new(0);
/// UUIDs that handles were given out for; a handle is the place here, counted from one.
static HANDLES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Devices found lost since the library was initialised: as with NVIDIA's, they stay so until it is shut down.
static LOST: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// `nvmlDevice_t`.
pub(crate) type Handle = *mut c_void;

/// Begins `function`, which takes no device.
pub(crate) fn begin(function: &str) -> Result<State, Code> {
    if N_INITIALISED.load(Ordering::SeqCst) == 0 {
        return Err(UNINITIALIZED);
    }
    read_for(function)
}

/// Begins `function` for a device.
pub(crate) fn begin_for(function: &str, handle: Handle) -> Result<(State, Device), Code> {
    let state = begin(function)?;
    let uuid = {
        let handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        handle.addr().checked_sub(1).and_then(|place| handles.get(place)).cloned().ok_or(INVALID_ARGUMENT)?
    };
    check(&state, function, &uuid)?;
    let device = state.device(&uuid).cloned().ok_or(GPU_IS_LOST)?;
    Ok((state, device))
}

pub(crate) fn initialise() -> Result<(), Code> {
    read_for("init")?;
    N_INITIALISED.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

pub(crate) fn shut_down() -> Result<(), Code> {
    let less = |n: u32| n.checked_sub(1);
    let before = N_INITIALISED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).map_err(|_| UNINITIALIZED)?;
    if before == 1 {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    Ok(())
}

/// The fault of `function` for this device, if it has one.
fn check(state: &State, function: &str, uuid: &str) -> Result<(), Code> {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_lost = lost.iter().any(|known| known == uuid);
    let fault = if is_lost { Some(GPU_IS_LOST) } else { state.fault(function, Some(uuid)) };
    if fault == Some(GPU_IS_LOST) && !is_lost {
        lost.push(uuid.to_owned());
    }
    fault.map_or(Ok(()), Err)
}

/// The handle of a device that exists and has no fault against `function`.
pub(crate) fn handle_of(state: &State, function: &str, uuid: &str) -> Result<Handle, Code> {
    check(state, function, uuid)?;
    if state.device(uuid).is_none() {
        return Err(NOT_FOUND);
    }
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = handles.iter().position(|known| known == uuid).unwrap_or_else(|| {
        handles.push(uuid.to_owned());
        handles.len() - 1
    });
    Ok(ptr::without_provenance_mut(place + 1))
}

/// Processes of `kind` on the device, with their ids as the driver shows them.
pub(crate) fn processes(state: &State, device: &Device, kind: Kind) -> Vec<Process> {
    let all = state.processes.iter().cloned().chain(claims::observe(state));
    let here = all.filter(|process| process.uuid == device.uuid && process.kind == kind);
    here.map(|process| Process { pid: process.pid.saturating_add(state.pid_offset), ..process }).collect()
}

/// Bytes in use: what the file says, and the claims.
pub(crate) fn used(state: &State, device: &Device) -> u64 {
    let claimed = claims::observe(state).into_iter().filter(|process| process.uuid == device.uuid);
    claimed.filter_map(|process| process.bytes).fold(device.used, u64::saturating_add)
}

fn read_for(function: &str) -> Result<State, Code> {
    let path = state_path(environment(), library_path()).ok_or(UNKNOWN)?;
    let read = || State::parse(&fs::read_to_string(&path).map_err(|_| UNKNOWN)?);
    let mut state = read()?;
    if let Some(pipe) = state.hang(function) {
        let _ = fs::read(pipe);
        state = read()?;
    }
    state.fault(function, None).map_or(Ok(state), Err)
}

fn environment() -> Option<OsString> {
    std::env::var_os("MOTORPOOL_FAKE_NVML").filter(|path| !path.is_empty())
}

fn state_path(named: Option<OsString>, library: Option<PathBuf>) -> Option<PathBuf> {
    let beside = |library: PathBuf| {
        let mut path = library.into_os_string();
        path.push(".state");
        path
    };
    named.or_else(|| library.map(beside)).map(PathBuf::from)
}

/// `Dl_info` of `dlfcn.h`.
#[repr(C)]
struct Place {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

/// Where this library was loaded from.
fn library_path() -> Option<PathBuf> {
    let mut place = Place { file: ptr::null(), base: ptr::null_mut(), symbol: ptr::null(), address: ptr::null_mut() };
    // SAFETY: `place` is writable and has the layout of `Dl_info`; the address is of a static of this library.
    let found = unsafe { dladdr((&raw const N_INITIALISED).cast(), &raw mut place) };
    if found == 0 || place.file.is_null() {
        return None;
    }
    // SAFETY: after success `file` is a C string of the loader's, which lives as long as this library is loaded.
    let file = unsafe { CStr::from_ptr(place.file) };
    Some(PathBuf::from(OsStr::from_bytes(file.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_file_before_the_library_does() {
        let library = || Some(PathBuf::from("/t/libnvidia-ml.so.1"));
        assert_eq!(state_path(Some("/s".into()), library()), Some("/s".into()));
        assert_eq!(state_path(None, library()), Some("/t/libnvidia-ml.so.1.state".into()));
        assert_eq!(state_path(None, None), None);
        assert!(library_path().is_some_and(|path| path.is_absolute()), "the loader knows this program");
    }
}
