//! The README shows the examples as they are.
#![cfg(test)]

#[test]
fn the_readme_shows_the_examples_line_for_line() {
    let readme = include_str!("../README.md");
    for example in [include_str!("../examples/agent.rs"), include_str!("../examples/caller.rs")] {
        let kept = example.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#![expect"));
        let code = kept.collect::<Vec<_>>().join("\n");
        assert!(readme.contains(code.trim()), "the README does not show\n{code}");
    }
}
