//! Mistakes about memory: capacity, devices, described machines, contexts and placements.
use super::{config, host, model, shows};

#[test]
fn a_bad_shape_or_spillover_is_shown_with_the_possible_ones() {
    shows(
        &config("[capacity]\nshape = \"discrete\""),
        r#"
motorpool.toml:2:9: `discrete` is not possible here, did you mean `discrete-gpu`?
  |
2 | shape = "discrete"
  |         ^^^^^^^^^^
  = example: shape = "discrete-gpu"
"#,
    );
    shows(
        &config("[capacity]\nallow_ram_spillover = true"),
        r#"
motorpool.toml:2:23: wrong type: expected a string
  |
2 | allow_ram_spillover = true
  |                       ^^^^
  = example: allow_ram_spillover = "off"
"#,
    );
    shows(
        &config("[capacity]\nallow_ram_spillover = \"of\""),
        r#"
motorpool.toml:2:23: `of` is not possible here, did you mean `off`?
  |
2 | allow_ram_spillover = "of"
  |                       ^^^^
  = example: allow_ram_spillover = "off"
"#,
    );
    shows(
        &config("[capacity]\nreserve = \"4\""),
        r#"
motorpool.toml:2:11: the size `4` has no unit: `4GiB` is 4 × 2^30 bytes
  |
2 | reserve = "4"
  |           ^^^
  = example: reserve = "4GiB"
"#,
    );
    shows(
        &config("[pool]\npolicy = \"lfu\""),
        r#"
motorpool.toml:2:10: `lfu` is not possible here, did you mean `lru`?
  |
2 | policy = "lfu"
  |          ^^^^^
  = example: policy = "demand-lru"
"#,
    );
}

#[test]
fn a_bad_device_is_shown_with_the_reason() {
    shows(
        &config("[[device]]\nid = \"\"\ntotal = \"1GiB\""),
        r#"
motorpool.toml:2:6: a device id may not be empty
  |
2 | id = ""
  |      ^^
  = example: id = "GPU-1a2b3c4d"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a (b)\"\ntotal = \"1GiB\""),
        r#"
motorpool.toml:2:6: the device id `a (b)` holds ' '
  |
2 | id = "a (b)"
  |      ^^^^^^^
  = example: id = "GPU-1a2b3c4d"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a\""),
        r#"
motorpool.toml:1:1: the key `total` is missing
  |
1 | [[device]]
  | ^^^^^^^^^^
  = example: total = "24GiB"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a\"\ntotal = \"0\""),
        r#"
motorpool.toml:3:9: this size must be above zero
  |
3 | total = "0"
  |         ^^^
  = example: total = "24GiB"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a\"\ntotal = \"1GiB\"\nreserve = \"2GiB\""),
        r#"
motorpool.toml:4:11: more is reserved than its 1.0 GiB
  |
4 | reserve = "2GiB"
  |           ^^^^^^
  = example: reserve = "1GiB"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a\"\ntotal = \"1GiB\"\n\n[[device]]\ntotal = \"2GiB\"\nid = \"a\""),
        r#"
motorpool.toml:7:6: the device id `a` is already taken by a [[device]] above
  |
7 | id = "a"
  |      ^^^
  = example: id = "GPU-1a2b3c4d"
"#,
    );
    shows(
        &config("[[device]]\nid = \"a\"\nttoal = \"1GiB\""),
        r#"
motorpool.toml:3:1: unknown key `ttoal`, did you mean `total`?
  |
3 | ttoal = "1GiB"
  | ^^^^^
  = example: total = "24GiB"
"#,
    );
    shows(
        &config("[device]\nid = \"a\""),
        r"
motorpool.toml:1:1: wrong type: table or date, expected a list
  |
1 | [device]
  | ^^^^^^^^
  = example: [[device]]
",
    );
}

#[test]
fn a_described_machine_has_memory_capacity_and_devices_and_nothing_else() {
    shows(
        &host(""),
        r"
host.toml: the key `host` is missing
  = example: [host]
",
    );
    shows(
        &host("[host]\nram = \"0\""),
        r#"
host.toml:2:7: this size must be above zero
  |
2 | ram = "0"
  |       ^^^
  = example: ram = "64GiB"
"#,
    );
    shows(
        &host("[host]\nram = 64"),
        r#"
host.toml:2:7: wrong type: integer `64`, expected a size such as "24GiB"
  |
2 | ram = 64
  |       ^^
  = example: ram = "64GiB"
"#,
    );
    shows(
        &host("[host]\nram = \"8GiB\"\n[capacity]\nreserve = \"9GiB\""),
        r#"
host.toml:4:11: this leaves nothing of 8.0 GiB
  |
4 | reserve = "9GiB"
  |           ^^^^^^
  = example: reserve = "4GiB"
"#,
    );
    shows(
        &host("[host]\nram = \"8GiB\"\n[pool]\npolicy = \"lru\""),
        r"
host.toml:3:2: unknown key `pool`; known here: `host`, `capacity`, `device`
  |
3 | [pool]
  |  ^^^^
",
    );
    shows(
        &host(
            "[host]\nram = \"8GiB\"\n[[device]]\nid = \"a\"\ntotal = \"1GiB\"\n[[device]]\nid = \"a\"\ntotal = \"1GiB\"",
        ),
        r#"
host.toml:7:6: the device id `a` is already taken by a [[device]] above
  |
7 | id = "a"
  |      ^^^
  = example: id = "GPU-1a2b3c4d"
"#,
    );
    shows(
        &host("[host]\nram = \"8GiB\"\n[capacity]\nshpae = \"unified\""),
        r#"
host.toml:4:1: unknown key `shpae`, did you mean `shape`?
  |
4 | shpae = "unified"
  | ^^^^^
  = example: shape = "discrete-gpu"
"#,
    );
}

#[test]
fn a_context_that_cannot_be_is_shown_with_the_reason() {
    shows(
        &model("id = \"a\"\ncontext = \"all\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: `all` is no context: a number of tokens, or "max"
  |
2 | context = "all"
  |           ^^^^^
  = example: context = 8192
"#,
    );
    shows(
        &model("id = \"a\"\ncontext = 1.5\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: wrong type: floating point `1.5`, expected a whole number from 256 to 16777216, or "max"
  |
2 | context = 1.5
  |           ^^^
  = example: context = 8192
"#,
    );
    shows(
        &model("id = \"a\"\ncontext_min = 255\nsource = { file = \"/x\" }"),
        r"
catalog/x.toml:2:15: `255` is not between 256 and 16777216
  |
2 | context_min = 255
  |               ^^^
  = example: context_min = 8192
",
    );
    shows(
        &model("id = \"a\"\ncontext = 4096\ncontext_min = 8192\nsource = { file = \"/x\" }"),
        r"
catalog/x.toml:3:15: `8192` is more than the context of 4096
  |
3 | context_min = 8192
  |               ^^^^
  = example: context_min = 8192
",
    );
    shows(
        &model("id = \"a\"\ncontext_min = 8192\ncontext = \"max\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:15: a context of "max" is never made shorter: it has no other floor
  |
2 | context_min = 8192
  |               ^^^^
  = example: context_min = 8192
"#,
    );
    shows(
        &model("id = \"a\"\ncontext = 4096\ncontext_target = 8192\nsource = { file = \"/x\" }"),
        r"
catalog/x.toml:3:18: a context of 4096 without `context_min` is exact: it does not grow
  |
3 | context_target = 8192
  |                  ^^^^
  = example: context_target = 131072
",
    );
    for (lines, why) in [
        ("context = \"max\"\ncontext_target = 8192", "a context of \"max\" has nothing to grow to"),
        ("context = 4096\ncontext_min = 1024\ncontext_target = 2048", "`2048` is less than the context of 4096"),
        ("context_min = 4096\ncontext_target = 2048", "`2048` is less than the floor of 4096"),
        ("context_target = 255", "`255` is not between 256 and 16777216"),
    ] {
        let shown = model(&format!("id = \"a\"\n{lines}\nsource = {{ file = \"/x\" }}"));
        assert!(shown.contains(why), "{why} in {shown}");
    }
    shows(
        &model("id = \"a\"\nprofile = \"agnet\"\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: `agnet` is not possible here, did you mean `agent`?
  |
2 | profile = "agnet"
  |           ^^^^^^^
  = example: profile = "agent"
"#,
    );
}

#[test]
fn a_file_beside_a_model_is_one_of_this_machine_and_a_pattern_is_what_both_sides_understand() {
    shows(
        &model("id = \"a\"\nprojector = { file = \"mmproj.gguf\" }\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:22: the path `mmproj.gguf` must begin with `/`; `${HOME}` can stand in it
  |
2 | projector = { file = "mmproj.gguf" }
  |                      ^^^^^^^^^^^^^
  = example: projector = { file = "/srv/models/mmproj.gguf" }
"#,
    );
    for (line, why) in [
        ("draft = { url = \"https://x\" }", "unknown key `url`"),
        ("draft = { file = \"/x\", tokens = 65 }", "`65` is not between 1 and 64"),
        ("adapters = [{ file = \"/a,b\" }]", "holds a comma"),
        ("cpu_tensors = [\"\"]", "is no pattern of tensors"),
        ("cpu_tensors = [\"a=CPU\"]", "is no pattern of tensors"),
        ("cpu_tensors = [\"a{2,3}\"]", "is no pattern of tensors"),
        ("cpu_tensors = [\"(\"]", "is no expression"),
        ("cpu_tensors = [\"(?i)a\"]", "is no expression"),
    ] {
        let shown = model(&format!("id = \"a\"\n{line}\nsource = {{ file = \"/x\" }}"));
        assert!(shown.contains(why), "{why} in {shown}");
    }
}

#[test]
fn a_placement_that_cannot_be_is_shown_with_the_reason() {
    shows(
        &model("id = \"a\"\nn_cpu_moe = 10001\nsource = { file = \"/x\" }"),
        r"
catalog/x.toml:2:13: `10001` is not between 0 and 10000
  |
2 | n_cpu_moe = 10001
  |             ^^^^^
  = example: n_cpu_moe = 12
",
    );
    shows(
        &model("id = \"a\"\ndevices = []\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: a list of no device says nothing; `gpu_layers = 0` keeps a model off graphics devices
  |
2 | devices = []
  |           ^^
  = example: devices = ["GPU-1a2b3c4d"]
"#,
    );
    shows(
        &model("id = \"a\"\ndevices = [\"a\", \"b\", \"a\"]\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:11: the device `a` is there twice
  |
2 | devices = ["a", "b", "a"]
  |           ^^^^^^^^^^^^^^^
  = example: devices = ["GPU-1a2b3c4d"]
"#,
    );
    shows(
        &model("id = \"a\"\ndevices = [\"a\", \"\"]\nsource = { file = \"/x\" }"),
        r#"
catalog/x.toml:2:17: a device id may not be empty
  |
2 | devices = ["a", ""]
  |                 ^^
  = example: devices = ["GPU-1a2b3c4d"]
"#,
    );
}
