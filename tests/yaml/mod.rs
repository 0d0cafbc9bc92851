//! YAML as those who use the files read it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};

use yaml_rust2::{Yaml, YamlLoader};

/// Where the checkout is now, which need not be where it was built.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The text of a file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every document of a file.
pub(crate) fn documents(path: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file of one document.
pub(crate) fn document(path: &str) -> Yaml {
    let mut documents = documents(path);
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

/// The items of a list.
pub(crate) fn items(list: &Yaml) -> &[Yaml] {
    list.as_vec().unwrap_or_else(|| panic!("no list: {list:?}"))
}

/// A text.
pub(crate) fn text(value: &Yaml) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value:?}"))
}

/// The files of a folder of the repository that end so, in order.
pub(crate) fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| named(path).ends_with(end)).collect();
    found.sort();
    assert!(!found.is_empty(), "no {end} in {folder}");
    found
}

fn named(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
