//! Reading vector files.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;

/// One vector, with the file it stands in.
pub(crate) struct Vector {
    pub(crate) file: String,
    pub(crate) fields: Value,
}

impl Vector {
    pub(crate) fn id(&self) -> &str {
        self.fields["id"].as_str().unwrap_or_else(|| panic!("{}: a vector without id", self.file))
    }

    pub(crate) fn to_hub(&self) -> bool {
        match self.fields["direction"].as_str() {
            Some("to_hub") => true,
            Some("to_agent") => false,
            _ => panic!("{}: no direction", self.id()),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        if let Some(hex) = self.fields["bytes_hex"].as_str() {
            return from_hex(hex).into();
        }
        let parts =
            self.fields["bytes_parts"].as_array().unwrap_or_else(|| panic!("{}: no bytes", self.id()));
        parts.iter().flat_map(|part| from_hex(part[0].as_str().unwrap()).repeat(times(part))).collect()
    }

    pub(crate) fn text(&self) -> String {
        if let Some(text) = self.fields["text"].as_str() {
            return text.to_owned();
        }
        let parts = self.fields["text_parts"].as_array().unwrap_or_else(|| panic!("{}: no text", self.id()));
        parts.iter().map(|part| part[0].as_str().unwrap().repeat(times(part))).collect()
    }
}

fn times(part: &Value) -> usize {
    usize::try_from(part[1].as_u64().unwrap()).unwrap()
}

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "half a byte in {hex}");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// All vectors of a folder below `protocol/vectors`, ordered by file.
pub(crate) fn vectors(folder: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut vectors = Vec::new();
    for path in files {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let list: Vec<Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        vectors.extend(list.into_iter().map(|fields| Vector { file: file.clone(), fields }));
    }
    vectors
}
