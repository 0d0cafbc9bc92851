//! The newcomer's first minute.
#![cfg(test)]

mod command;

use std::net::TcpListener;
use std::path::Path;

use command::Running;

const FREE: [&str; 6] = ["--agents", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];

fn start(dir: &Path, arguments: &[&str]) -> Running {
    let mut all = vec!["demo"];
    all.extend(arguments);
    Running::start(dir, &all)
}

#[test]
fn demo_once_shows_every_step_and_exits_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut arguments = FREE.to_vec();
    arguments.push("--once");
    let ended = start(dir.path(), &arguments).ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let steps = [
        "Call by capability",
        "Directed call",
        "Stream",
        "Cancel",
        "Fan-out",
        "Notify",
        "Task",
        "Failure",
        "Trace",
    ];
    for (number, step) in (1..).zip(steps) {
        let head = format!("[{number}/9]  {step}\n");
        assert!(ended.stdout.contains(&head), "no {head:?} in {}", ended.stdout);
    }
    assert_eq!(ended.stdout.matches("\n       ok, ").count(), 9, "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}'), "colours are for terminals");
    assert!(!dir.path().join(".agent-reach/dev.json").exists(), "no hub is left to be found");
}

#[test]
fn the_commands_that_the_demo_names_work_in_a_second_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let demo = start(dir.path(), &[&FREE[..], &["--dir", "a dir"]].concat());
    let mut commands = Vec::new();
    // As it was called itself: these are to be copied into another terminal as they stand.
    let itself = format!("  {} ", env!("CARGO_BIN_EXE_agent-reach"));
    loop {
        let line = demo.line().expect("the demo stays up");
        if let Some(command) = line.strip_prefix(&itself) {
            commands.push(command.to_owned());
        }
        if line.contains("Ctrl-C ends them") {
            break;
        }
    }
    assert_eq!(commands.len(), 6, "{commands:?}");
    for command in commands.iter().filter(|command| !command.starts_with("tail")) {
        let shell = format!("{} {command}", env!("CARGO_BIN_EXE_agent-reach"));
        let output = std::process::Command::new("sh").args(["-c", &shell]).current_dir(dir.path()).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{command}: {output:?}");
        if command.starts_with("call text.upper") {
            assert_eq!(output.stdout, b"{\"text\":\"HELLO\"}\n");
        }
    }
    demo.interrupt();
    let ended = demo.ended();
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
}

#[test]
fn a_usual_port_that_is_taken_is_replaced_and_one_that_was_asked_for_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("its address");
    let ended =
        start(dir.path(), &["--once", "--agents", &taken.1, FREE[2], FREE[3], FREE[4], FREE[5]]).ended();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(&taken.1), "{ended:?}");

    // Whether this test has the port or somebody else on this machine: it is taken.
    let usual = "127.0.0.1:9464";
    let _held = TcpListener::bind(usual);
    let ended = start(dir.path(), &["--once", FREE[0], FREE[1], FREE[2], FREE[3]]).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(&format!("{usual} is taken: using a free port instead")), "{ended:?}");
}
