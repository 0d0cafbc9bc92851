//! What every crate says of itself, and what the repository says of its versions.

use super::tree::{files, read, root};

fn members() -> Vec<(String, toml::Table)> {
    let manifests = files("Cargo.toml").into_iter();
    manifests.map(|file| (file.path, file.text.parse().unwrap())).collect()
}

#[test]
fn every_crate_has_the_licence_the_lints_and_a_description_and_is_not_published() {
    let members = members();
    assert!(members.len() >= 5, "where are the crates?");
    for (path, manifest) in members {
        let package = manifest["package"].as_table().unwrap();
        let inherited = |value: &toml::Value| value.get("workspace") == Some(&toml::Value::Boolean(true));
        for key in ["license", "version", "edition", "rust-version", "repository"] {
            assert!(package.get(key).is_some_and(inherited), "{path}: {key}.workspace = true is missing");
        }
        let publish = package.get("publish");
        assert!(
            publish.is_some_and(|value| inherited(value) || value.as_bool() == Some(false)),
            "{path}: publish"
        );
        assert!(package.get("description").is_some_and(toml::Value::is_str), "{path}: description");
        assert!(manifest.get("lints").is_some_and(inherited), "{path}: [lints] workspace = true");
    }
}

#[test]
fn the_licence_is_there_in_full() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let package = &manifest["workspace"]["package"];
    assert_eq!(package["license"].as_str(), Some("MIT OR Apache-2.0"));
    assert_eq!(package["publish"].as_bool(), Some(false));
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(name).is_file(), "{name}");
    }
}

#[test]
fn the_readme_names_the_oldest_rust_that_the_workspace_takes() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let oldest = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(read("README.md").contains(&format!("Rust ({oldest} or later)")), "README.md and {oldest}");
}

#[test]
fn the_changelog_has_a_section_for_what_is_not_released() {
    assert!(read("CHANGELOG.md").contains("\n## Unreleased"));
}
