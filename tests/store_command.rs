//! `agent-reach store` beside a hub's store that is open.
#![cfg(test)]

#[path = "store_world/mod.rs"]
mod world;

use std::path::Path;
use std::process::{Command, Output};

use agent_reach::store::StoreOptions;
use agent_reach_core::{CallId, StoreNews};
use rusqlite::Connection;
use serde_json::{Value, json};
use world::{called, end, ended, id, new, next, open, record, task};

fn command(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
    command.arg("store").args(arguments).arg("--path").arg(path).output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_store_is_checked_counted_and_exported_beside_its_hub() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("store.db"));
    let (store, _, news) = open(&options);
    let late = agent_reach_core::TaskEnd { expires: world::NEVER, ..end(1) };
    store.write([(1, new(task(1))), (2, new(task(2))), (3, ended(late))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 3 });

    let checked = command(&["check"], &options.path);
    assert_eq!((checked.status.code(), &checked.stdout[..]), (Some(0), &b"ok\n"[..]));
    let stats = lines(&command(&["stats", "--json"], &options.path));
    assert_eq!((&stats[0]["tasks_queued"], &stats[0]["tasks_succeeded"]), (&json!(1), &json!(1)));
    let exported = lines(&command(&["export", "--bodies"], &options.path));
    let names: Vec<_> = exported.iter().map(|line| line["task"]["task_id"].as_str().unwrap()).collect();
    assert_eq!(names, [id(1).to_string(), id(2).to_string()]);
    assert_eq!(
        (&exported[0]["task"]["state"], &exported[0]["task"]["end"]),
        (&json!("SUCCEEDED"), &json!("ZW5kIDE="))
    );
    assert_eq!(
        (&exported[1]["task"]["call"], &exported[1]["task"]["end"]),
        (&json!("Y2FsbCAy"), &json!(null))
    );

    store.record([record(&called(10))]);
    store.close().unwrap();
    let exported = lines(&command(&["export"], &options.path));
    assert_eq!(exported.len(), 3);
    assert_eq!(exported[0]["task"].get("call"), None);
    assert_eq!(exported[2]["record"]["call_id"], json!(&*CallId::new(7, 10)));
}

#[test]
fn what_does_not_agree_is_told_and_fails() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("store.db");
    let absent = command(&["check"], &path);
    assert_eq!(absent.status.code(), Some(1));
    assert!(!path.exists(), "to look is not to make");
    let (store, _, news) = open(&StoreOptions::new(&path));
    store.write([(1, new(task(1)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
    store.close().unwrap();
    Connection::open(&path).unwrap().execute_batch("DELETE FROM task_calls").unwrap();
    let wrong = command(&["check"], &path);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(std::str::from_utf8(&wrong.stderr), Ok("1 tasks without their CALL\n"));
}
