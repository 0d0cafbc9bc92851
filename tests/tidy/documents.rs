//! Documents name what is there: files, headings, commands, targets of make, and the examples word by word.

use agent_reach::cli::Cli;
use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::tree::{File, files, paths, read};

/// Folders at the root whose names begin a path.
const PLACES: [&str; 10] =
    ["protocol/", "core/", "sdk/", "src/", "loadtest/", "tests/", "docs/", "dashboards/", "deploy/", ".ci/"];

/// A document in its parts.
#[derive(Default)]
struct Parts {
    /// Lines of running text, lists and tables.
    prose: Vec<String>,
    /// Commands of code blocks, continued lines joined.
    commands: Vec<String>,
}

fn parts(text: &str) -> Parts {
    let mut parts = Parts::default();
    let mut fence: Option<bool> = None;
    let mut after_blank = true;
    let mut in_block = false;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                None => Some(matches!(language, "sh" | "shell" | "bash" | "console")),
                Some(_) => None,
            };
            continue;
        }
        in_block = fence.is_none() && line.starts_with("    ") && (in_block || after_blank);
        after_blank = line.is_empty();
        if in_block || fence == Some(true) {
            match parts.commands.last_mut().filter(|last| last.ends_with('\\')) {
                Some(last) => {
                    last.pop();
                    last.push_str(line.trim());
                }
                None => parts.commands.push(line.trim().trim_start_matches("$ ").to_owned()),
            }
        } else if fence.is_none() {
            parts.prose.push(line.to_owned());
        }
    }
    parts
}

/// What stands in code marks in a line.
fn marked(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The words of a command as a shell takes them.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    // `None` between words; a quoted one may be empty.
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c.is_whitespace() => words.extend(word.take()),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The arguments of an `agent-reach` command, its own name first; `None` when it is another program's.
fn arguments(command: &str) -> Option<Vec<String>> {
    let mut words = words(command);
    let variables = words.iter().take_while(|word| word.split_once('=').is_some()).count();
    words.drain(..variables);
    let own = words.first().is_some_and(|program| program.rsplit('/').next() == Some("agent-reach"));
    let end = words.iter().position(|word| matches!(word.as_str(), "&" | "|" | ">" | "&&" | ";"));
    words.truncate(end.unwrap_or(words.len()));
    own.then_some(words)
}

/// Every heading of a document as a link names it.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}

/// A path from one document, with its `..` taken away.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a path has the form of a pattern, in which `*` stands for anything.
fn fits(path: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => path == pattern,
        Some((head, tail)) => {
            path.starts_with(head) && path.ends_with(tail) && !path[head.len()..].contains('/')
        }
    }
}

fn documents() -> Vec<File> {
    files(".md")
}

/// Where a link of one document leads to nothing.
fn broken(paths: &[String], file: &File, link: &str) -> bool {
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if target.is_empty() { file.path.clone() } else { resolve(&file.path, target) };
    let heading = |anchor| anchors(&read(&target)).iter().any(|own| own == anchor);
    !paths.contains(&target) || !(anchor.is_empty() || heading(anchor))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let paths = paths();
    let mut nowhere = Vec::new();
    for file in documents() {
        for line in parts(&file.text).prose {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let own = links.filter(|link| !link.contains("://") && broken(&paths, &file, link));
            nowhere.extend(own.map(|link| format!("{}: {link}", file.path)));
        }
    }
    assert_eq!(nowhere, Vec::<String>::new());
}

/// In the row of a place in a table, files are named as they stand there.
fn place_of(line: &str) -> &str {
    let first = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()).unwrap_or_default();
    if first.ends_with('/') { first } else { "" }
}

#[test]
fn every_path_in_code_marks_is_there() {
    let paths = paths();
    let mut absent = Vec::new();
    for file in documents() {
        for line in parts(&file.text).prose {
            let place = place_of(&line);
            for word in marked(&line).into_iter().filter(|word| !word.contains(['<', ' ', '{'])) {
                let rooted = PLACES.iter().any(|place| word.starts_with(place));
                let folder_of_place = word.ends_with('/') && !place.is_empty();
                if !(rooted || word.ends_with(".rs") || folder_of_place) {
                    continue;
                }
                let asked = word.trim_end_matches('/');
                let (here, end) = (resolve(&file.path, asked), format!("/{asked}"));
                let named = |path: &String| {
                    let within = !rooted && path.starts_with(place) && path.ends_with(&end);
                    within || fits(path, asked) || fits(path, &here)
                };
                if !paths.iter().any(named) {
                    absent.push(format!("{}: {word}", file.path));
                }
            }
        }
    }
    assert_eq!(absent, Vec::<String>::new());
}

#[test]
fn included_code_is_that_of_its_file() {
    let mut included = 0;
    for file in documents() {
        for part in file.text.split("<!-- include ").skip(1) {
            let (path, rest) = part.split_once(" -->\n").unwrap();
            let (_, code) = rest.split_once('\n').filter(|(fence, _)| fence.starts_with("```")).unwrap();
            let (code, _) = code.split_once("```").unwrap();
            let source = read(path);
            let kept =
                source.lines().filter(|line| !line.starts_with("//!") && !line.starts_with("#![expect"));
            let expected = kept.collect::<Vec<_>>().join("\n");
            assert_eq!(code.trim(), expected.trim(), "{} and {path}", file.path);
            included += 1;
        }
    }
    assert!(included >= 2, "the README shows its examples");
}

#[test]
fn commands_in_code_blocks_are_taken_by_the_program() {
    let mut taken = 0;
    for file in documents() {
        for command in parts(&file.text).commands {
            let Some(arguments) = arguments(&command) else { continue };
            if let Err(error) = Cli::command().try_get_matches_from(arguments) {
                panic!("{}: {command}\n{error}", file.path);
            }
            taken += 1;
        }
    }
    assert!(taken >= 10, "{taken}");
}

#[test]
fn commands_in_running_text_exist() {
    let examples = ["docs/agent-reach.example.toml", "docs/policy.example.toml"];
    let examples = examples.map(|path| File { path: path.to_owned(), text: read(path) });
    for file in documents().into_iter().chain(examples) {
        for line in parts(&file.text).prose {
            for command in marked(&line) {
                let Some(arguments) = arguments(command) else { continue };
                // A command may be named without what it needs.
                let named = Cli::command().try_get_matches_from(arguments).err().is_none_or(|error| {
                    matches!(
                        error.kind(),
                        ErrorKind::MissingRequiredArgument
                            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                            | ErrorKind::DisplayHelp
                            | ErrorKind::DisplayVersion
                    )
                });
                assert!(named, "{}: {command}", file.path);
            }
        }
    }
}

#[test]
fn targets_of_make_exist() {
    let makefile = read("Makefile");
    let targets: Vec<_> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let mut named = 0;
    for file in documents() {
        let Parts { prose, commands } = parts(&file.text);
        let marked = prose.iter().flat_map(|line| marked(line));
        for command in marked.chain(commands.iter().map(String::as_str)) {
            let Some(rest) = command.strip_prefix("make ") else { continue };
            for target in
                rest.split_whitespace().take_while(|word| *word != "&&").filter(|w| !w.contains('='))
            {
                assert!(targets.contains(&target), "{}: make {target}", file.path);
                named += 1;
            }
        }
    }
    assert!(named >= 3, "{named}");
}

#[test]
fn every_command_is_in_the_changelog_and_the_operators_page_or_the_readme() {
    let pages = [read("README.md"), read("docs/operations.md")].concat();
    let changes = read("CHANGELOG.md");
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        assert!(pages.contains(&format!("agent-reach {name}")), "{name} is explained nowhere");
        assert!(changes.contains(&format!("`{name}`")), "{name} is not in the changelog");
    }
}

#[test]
fn every_test_and_every_setting_that_the_threat_model_names_is_there() {
    let example = read("docs/agent-reach.example.toml");
    let section =
        |name: &str| example.split(&format!("\n[{name}]\n")).nth(1).unwrap().split("\n[").next().unwrap();
    let tests: String = files(".rs").iter().map(File::tests).collect();
    let (mut named, mut settings) = (0, 0);
    // Code marks stand on one line, but for a list of tests in brackets.
    for word in parts(&read("SECURITY.md")).prose.iter().flat_map(|line| marked(line)) {
        if word.matches('_').count() >= 3
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
        {
            assert!(tests.contains(&format!("fn {word}(")), "SECURITY.md: no test {word}");
            named += 1;
        }
        let Some((place, key)) = word.split_once('.') else { continue };
        if example.contains(&format!("\n[{place}]\n")) {
            let there = section(place)
                .lines()
                .any(|line| line.trim_start_matches('#').starts_with(&format!("{key} = ")));
            assert!(there, "SECURITY.md: no setting {word}");
            settings += 1;
        }
    }
    assert!(named >= 30 && settings >= 10, "{named} tests, {settings} settings");
}
