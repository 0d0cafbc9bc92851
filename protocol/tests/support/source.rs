//! What the source of the crate declares.

/// One key of a header.
pub(crate) struct DeclaredKey {
    pub(crate) header: String,
    pub(crate) key: String,
    /// Whether it is written even where it says only its default.
    pub(crate) always: bool,
}

/// Every header and key, from the source that declares them.
pub(crate) fn declared_keys() -> Vec<DeclaredKey> {
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
                    let (key, rest) = rest.split_once('"').unwrap();
                    let always = rest.starts_with(" always");
                    keys.push(DeclaredKey { header: header.to_owned(), key: key.to_owned(), always });
                }
            }
        }
    }
    for key in ["targets", "completed", "failed"] {
        keys.push(DeclaredKey { header: "Summary".to_owned(), key: key.to_owned(), always: true });
    }
    keys
}
