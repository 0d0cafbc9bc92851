//! Writes the seeds of the corpus: one file for each golden vector in `protocol/vectors`, and a few scripts for
//! the operations. `cargo run --example seeds -- FOLDER`

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Longer ones teach the fuzzer nothing but patience.
const SEED_MAX: usize = 4096;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder to write to"));
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/vectors");
    for part in ["accept", "reject", "json/accept", "json/reject"] {
        for (name, bytes) in messages(&vectors.join(part)) {
            for target in ["decode_msgpack", "decode_json", "round_trip"] {
                write(&folder.join(target), &format!("{}-{name}", part.replace('/', "-")), &bytes);
            }
        }
    }
    for (name, script) in scripts() {
        write(&folder.join("hub_operations"), name, &script);
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    if bytes.len() <= SEED_MAX {
        std::fs::create_dir_all(folder).expect("a folder for the seeds");
        std::fs::write(folder.join(name), bytes).expect("a seed");
    }
}

/// The messages and texts of a folder's vectors, by their names.
fn messages(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the vectors") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file of vectors");
        for vector in serde_json::from_str::<Vec<Value>>(&text).expect("a list of vectors") {
            let id = vector["id"].as_str().expect("a name").replace(['/', ' '], "-");
            found.extend(vector["bytes_hex"].as_str().map(|hex| (id.clone(), from_hex(hex))));
            found
                .extend(vector["text"].as_str().map(|text| (format!("{id}-text"), text.as_bytes().to_vec())));
        }
    }
    found
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// Operations in the words of `targets/hub_operations`: the choices of the settings, then one after the other.
fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let settings = [0; 9];
    // Place, name, HELLO at once; of it: v, agent_id, instance, capabilities, each one's extras, and none else.
    let provider = |place: u8, name: u8| vec![0, place, name, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    let caller = |place: u8, name: u8| vec![0, place, name, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // Id 1 of capability `a`, with these choices, to one agent, with a body of three bytes.
    let call = |place: u8, choices: &[u8]| [&[2, place, 0, 0, 0][..], choices, &[0, 3, 9]].concat();
    let all_read = vec![14, 0];
    let accept = |place: u8| vec![2, place, 8, 0, 0];
    let chunk = |place: u8, seq: u8| vec![2, place, 11, 0, seq, 3, 7];
    let complete = |place: u8| vec![2, place, 14, 0, 0, 0, 3, 5];
    let wait = |how: u8| vec![11, how];
    let close = |place: u8| vec![2, place, 26];
    let one = || [settings.to_vec(), provider(0, 0), caller(1, 1)].concat();
    vec![
        ("call", [one(), call(1, &[0]), all_read.clone(), accept(0), complete(0), all_read.clone()].concat()),
        ("silent-provider", [one(), call(1, &[0]), wait(0), wait(0), wait(5), all_read.clone()].concat()),
        (
            "stream",
            [
                one(),
                call(1, &[4, 2]),
                all_read.clone(),
                chunk(0, 0),
                chunk(0, 1),
                complete(0),
                all_read.clone(),
            ]
            .concat(),
        ),
        ("cancel", [one(), call(1, &[0]), all_read.clone(), vec![2, 1, 18, 0, 0], complete(0)].concat()),
        (
            "resume",
            [
                one(),
                call(1, &[1, 0]),
                all_read.clone(),
                close(1),
                caller(2, 1),
                call(2, &[1, 0]),
                complete(0),
            ]
            .concat(),
        ),
        (
            "lost-provider",
            [one(), call(1, &[0]), all_read.clone(), close(0), wait(4), all_read.clone()].concat(),
        ),
        (
            "task",
            [
                one(),
                call(1, &[2, 2]),
                vec![0x7e, 0x7e],
                all_read.clone(),
                accept(0),
                complete(0),
                vec![0x7e],
                all_read.clone(),
            ]
            .concat(),
        ),
        (
            "task-after-restart",
            [
                one(),
                call(1, &[2, 2]),
                vec![0x7e, 0x7e, 0xae, 0],
                provider(0, 0),
                vec![0x7e],
                all_read.clone(),
            ]
            .concat(),
        ),
        ("takeover", [one(), caller(2, 1), call(2, &[0]), all_read.clone(), wait(3)].concat()),
        (
            "watch",
            [one(), vec![2, 1, 0, 0, 11, 4, 2, 0, 0], provider(2, 2), all_read, close(2), wait(6)].concat(),
        ),
    ]
}
