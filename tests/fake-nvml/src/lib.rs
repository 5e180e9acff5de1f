//! A library that answers as NVIDIA's management library (NVML) does, out of a text file: for tests on machines
//! without a graphics card, and for faults that no card shows on demand.
//!
//! Boundary: the few functions of NVML that Motorpool calls, with the layouts of `nvml.h`; nothing is kept between
//! calls but the count of initialisations, the handles given out, the devices found lost, and when a claim's process
//! was first found dead.
//! The file is read again at each call. It is named by the environment's `MOTORPOOL_FAKE_NVML`; without that it is
//! `<path of the library>.state`, so that tests of one process can each load a copy of their own.
//!
//! # The file
//!
//! One thing a line; `#` begins a comment. What comes last may hold blanks. Sizes are plain numbers of bytes.
//!
//! ```text
//! driver 570.86.10
//! cuda 12080
//! device uuid=GPU-a pci=00000000:01:00.0 total=25769803776 reserved=0 used=1073741824 mig=off name=NVIDIA GeForce RTX 3090
//! device uuid=MIG-a of=GPU-a total=10737418240 name=NVIDIA A100 MIG 1g.10gb
//! process uuid=GPU-a pid=41 bytes=104857600 kind=compute
//! order GPU-b GPU-a
//! claims /tmp/claims
//! lag-ms 1000
//! pid-offset 100000
//! engine CUDA GPU-b GPU-a
//! fault init driver-not-loaded
//! fault nvmlDeviceGetMemoryInfo_v2 GPU-a not-supported
//! fault all GPU-b lost
//! hang nvmlDeviceGetMemoryInfo_v2 /tmp/pipe
//! ```
//!
//! - `device`: `reserved` (0), `used` (0) and `mig` (`on`, `off`, `none`: the card has no such mode; the default)
//!   may be left out. Indices are the order of the lines, or that of `order`; a device that `order` leaves out is
//!   not enumerated.
//! - `of`: an instance of that card, which has `mig=on`. It is not enumerated, and nothing is subtracted from the card.
//! - `process`: shown by the driver, not added to `used`. `bytes=unknown`: the driver shows the process without its
//!   memory. `kind`: `compute` (default) or `graphics`.
//! - `claims`: a folder whose files `<pid>` hold lines `<uuid> <bytes>`, written by whoever plays an engine. While
//!   the process lives, and for `lag-ms` (0) from when a call first finds it gone, its bytes are used and its entry
//!   is shown.
//! - `pid-offset`: added to each process id that is shown: how a container sees the ids of its host.
//! - `engine`: not for this library: how a fake engine calls its backend, and in which order it lists devices.
//! - `fault <function> <uuid> <error>`: that function fails for that device; `all` for every function that takes a
//!   device, handles by index and UUID included. `init`, `count` and `driver` are functions without a device.
//!   Errors: `driver-not-loaded`, `lost`, `not-supported`, `not-permitted`, `not-found`, `no-data`,
//!   `reset-required`, `unknown`. A device found `lost` stays so until the library is shut down, whatever the file
//!   says then.
//! - `hang <function> <path>`: the function first reads that file to its end. On a named pipe it hangs from when a
//!   writer has opened it until the writer closes it, so that a test knows both moments.
//!
//! A file that cannot be read or understood answers `NVML_ERROR_UNKNOWN` to every call.
#![expect(unsafe_code, reason = "a C library: raw pointers in, exported symbols out")]
mod abi;
mod claims;
mod code;
mod library;
mod state;
