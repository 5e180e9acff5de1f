//! The return codes of `nvml.h` and their names in the state file.
use std::ffi::CStr;

/// `nvmlReturn_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

pub(crate) const SUCCESS: Code = Code(0);
pub(crate) const UNINITIALIZED: Code = Code(1);
pub(crate) const INVALID_ARGUMENT: Code = Code(2);
pub(crate) const NOT_SUPPORTED: Code = Code(3);
pub(crate) const NOT_FOUND: Code = Code(6);
pub(crate) const INSUFFICIENT_SIZE: Code = Code(7);
pub(crate) const GPU_IS_LOST: Code = Code(15);
pub(crate) const UNKNOWN: Code = Code(999);

/// The names of errors in the state file.
const NAMES: &[(&str, Code)] = &[
    ("driver-not-loaded", Code(9)),
    ("lost", GPU_IS_LOST),
    ("not-supported", NOT_SUPPORTED),
    ("not-permitted", Code(4)),
    ("not-found", NOT_FOUND),
    ("no-data", Code(21)),
    ("reset-required", Code(16)),
    ("unknown", UNKNOWN),
];

impl Code {
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
    }

    /// What `nvmlErrorString` says; not NVIDIA's wording.
    pub(crate) fn text(self) -> &'static CStr {
        match self {
            SUCCESS => c"success",
            UNINITIALIZED => c"not initialised",
            INVALID_ARGUMENT => c"invalid argument",
            NOT_SUPPORTED => c"not supported",
            NOT_FOUND => c"not found",
            INSUFFICIENT_SIZE => c"insufficient size",
            GPU_IS_LOST => c"device is lost",
            _ => c"unknown error",
        }
    }
}

impl From<Result<(), Code>> for Code {
    fn from(result: Result<(), Code>) -> Self {
        result.err().unwrap_or(SUCCESS)
    }
}
