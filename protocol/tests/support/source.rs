//! What the source of the crate declares.

/// Every header and key, from the source that declares them.
pub(crate) fn declared_keys() -> Vec<(String, String)> {
    let sources = [include_str!("../../src/envelope/session.rs"), include_str!("../../src/envelope/call.rs")];
    let mut keys = Vec::new();
    for source in sources {
        for block in source.split("map_type! {").skip(1) {
            let block = block.split("\n    }").next().unwrap();
            let mut header = "";
            for line in block.lines().map(str::trim) {
                if let Some(name) = line.strip_suffix(" {") {
                    header = name;
                } else if let Some((_, rest)) = line.split_once(" = \"")
                    && !line.starts_with("//")
                {
                    let key = rest.split('"').next().unwrap();
                    keys.push((header.to_owned(), key.to_owned()));
                }
            }
        }
    }
    for key in ["targets", "completed", "failed"] {
        keys.push(("Summary".to_owned(), key.to_owned()));
    }
    keys
}
