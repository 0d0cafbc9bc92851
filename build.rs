//! Puts what was built in `console/dist` into the hub: a table of files for `src/http/console/files.rs`.
//!
//! A hub is built without a console as well, and says so in its place: nobody needs Node to work on the hub.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::Path;

const DIST: &str = "console/dist";

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::var("CARGO_MANIFEST_DIR")?;
    let dist = Path::new(&root).join(DIST);
    // A folder that is not there counts as changed each time, and the hub would be compiled anew for it. Where none can be
    // made, that is all that happens.
    fs::create_dir_all(&dist).ok();
    writeln!(std::io::stdout(), "cargo::rerun-if-changed={DIST}\ncargo::rerun-if-changed=build.rs")?;
    let mut paths = Vec::new();
    if dist.is_dir() {
        collect(&dist, "", &mut paths)?;
    }
    paths.sort();
    let mut table = String::from("&[\n");
    for path in &paths {
        let file = |path: &str| format!("include_bytes!({:?})", dist.join(path).display().to_string());
        let twin = format!("{path}.gz");
        let gzip =
            if dist.join(&twin).is_file() { format!("Some({})", file(&twin)) } else { "None".to_owned() };
        table +=
            &format!("File {{ path: {:?}, bytes: {}, gzip: {gzip} }},\n", format!("/{path}"), file(path));
    }
    table += "]\n";
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("console.rs"), table)?;
    Ok(())
}

/// All that is served, by its path below the folder: no compressed twins, and no maps for debuggers.
fn collect(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| format!("{}", name.display()))?;
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !plain {
            return Err(format!("{DIST}/{prefix}{name}: this is no name for an address").into());
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), paths)?;
        } else if !name.starts_with('.') && !name.ends_with(".gz") && !name.ends_with(".map") {
            paths.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}
