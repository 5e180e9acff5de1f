//! The fake NVML as other programs meet it: found by path, its state named by the environment. The only test of its
//! program, because an environment is everyone's.
mod support;

use motorpool_devices::Nvidia;
use motorpool_vocab::GIB;
use std::fs;
use support::Fake;

#[test]
#[expect(unsafe_code, clippy::disallowed_methods, reason = "stands in for the shell that starts the program")]
fn the_environment_names_the_state() {
    let fake = Fake::new("nonsense\n");
    let state = fake.path("elsewhere");
    fs::write(&state, format!("device uuid=GPU-env total={GIB} name=here\n")).expect("writable");
    // SAFETY: no other test runs in this program, and no thread of it reads the environment meanwhile.
    unsafe { std::env::set_var("MOTORPOOL_FAKE_NVML", &state) };
    let devices = Nvidia::new(Some(fake.library())).observe().devices;
    assert_eq!(devices.iter().map(|device| &*device.id.0).collect::<Vec<_>>(), ["GPU-env"]);
}
