//! `hub.tasks.retry`: a failed task's CALL once more, by an operator's word.
#![cfg(test)]

mod world;

use agent_reach_core::{Fact, Policy, Rule, Settings};
use agent_reach_protocol::{Call, ToAgent, decode_to_agent, encode};
use rmpv::Value;
use world::*;

fn rule(who: &str, call: &[&str]) -> Rule {
    Rule {
        identity: Some(format!("spiffe://d/agent/{who}")),
        agent_ids: None,
        provide: vec!["*".parse().unwrap()],
        call: call.iter().map(|pattern| pattern.parse().unwrap()).collect(),
    }
}

/// A provider, the owner of tasks, an operator, one who has the capability and not everybody's tasks, and one who may
/// call all that `*` covers.
fn rules(owner: &[&str]) -> Policy {
    let operator = ["*", "hub.*", "hub.tasks.all"];
    let rules = vec![
        rule("p", &[]),
        rule("c", owner),
        rule("op", &operator),
        rule("half", &["hub.*"]),
        rule("star", &["*", "hub.tasks.all"]),
    ];
    Policy { rules, ..Policy::default() }
}

fn world() -> World {
    let mut w = World::with_store_under(Settings::default(), rules(&["*"]));
    w.join("p", provider("p", "echo"));
    for name in ["c", "op", "half", "star"] {
        w.join(name, caller(name));
    }
    w
}

/// Lets the provider fail the task that it has under this id, for good.
fn fail(w: &mut World, id: u64) {
    w.say("p", &failed(id, "handler_error", false));
    w.write();
}

/// A task of the owner that has failed; its name.
fn failed_task(w: &mut World) -> String {
    let body = encode(&Call { keep_ms: Some(60_000), ..task(1, "echo") }, Some(b"body"));
    w.say_bytes("c", body);
    w.write();
    fail(w, 1);
    w.all_heard();
    w.only_task()
}

/// Asks for a retry, and gives what the hub says to it.
fn retry(w: &mut World, name: &str, id: u64, task_id: &str) -> Result<Value, (String, String)> {
    ask_retry(w, name, id, task_id);
    w.write();
    answer(w, name)
}

fn ask_retry(w: &mut World, name: &str, id: u64, task_id: &str) {
    let mut packed = Vec::new();
    let body = Value::Map(vec![("task_id".into(), task_id.into())]);
    rmpv::encode::write_value(&mut packed, &body).unwrap();
    w.say_bytes(name, encode(&call(id, "hub.tasks.retry"), Some(&packed)));
}

fn answer(w: &mut World, name: &str) -> Result<Value, (String, String)> {
    for outgoing in w.take(name) {
        let Some(message) = outgoing.message() else { continue };
        let Ok((ToAgent::Result(result), body)) = decode_to_agent(&message) else { continue };
        // What comes home of other tasks has no id.
        if result.id.is_none() {
            continue;
        }
        return match result.error {
            Some(error) => {
                let details = error.details.map(|raw| rmpv::decode::read_value(&mut &*raw.0).unwrap());
                let field = details.and_then(|details| details["field"].as_str().map(str::to_owned));
                Err((error.code.to_owned(), field.unwrap_or_default()))
            }
            None => Ok(rmpv::decode::read_value(&mut &*body.unwrap()).unwrap()),
        };
    }
    panic!("no RESULT for {name}");
}

fn refused(code: &str) -> Result<Value, (String, String)> {
    let field = if code == "invalid_request" { "task_id" } else { "" };
    Err((code.to_owned(), field.to_owned()))
}

#[test]
fn a_failed_task_s_call_is_made_again_as_a_new_task_and_its_result_goes_to_the_owner() {
    let mut w = world();
    let old = failed_task(&mut w);
    let answer = retry(&mut w, "op", 1, &old).unwrap();
    let new = answer["task_id"].as_str().unwrap().to_owned();
    assert_eq!(answer["retry_of"].as_str(), Some(&*old));
    assert_ne!(new, old);
    let given = w.take("p");
    let message = given[0].message().unwrap();
    let Ok((ToAgent::Call(again), body)) = decode_to_agent(&message) else { panic!("{given:?}") };
    let request_id = again.request_id;
    assert!(request_id.starts_with("r~") && request_id.len() == 14, "{request_id}");
    assert_eq!((again.caller, again.task_id, again.attempt), ("c", Some(&*new), 1));
    assert_eq!(body.as_deref(), Some(&b"body"[..]));
    w.say_with("p", &completed(2), "done");
    w.write();
    let home = w.heard("c");
    assert!(home[0].starts_with("RESULT - completed"), "{home:?}");
    assert_eq!(w.heard("op"), Vec::<String>::new());
    let stored = &w.disk.tasks[&new.parse().unwrap()].new;
    assert_eq!(stored.retry_of.unwrap().to_string(), old);
    assert_eq!((&*stored.identity, &*stored.agent), ("spiffe://d/agent/c", "c"));
}

#[test]
fn only_a_failed_task_that_is_known_is_made_again() {
    let mut w = world();
    w.say("c", &task(1, "echo"));
    w.write();
    let open = w.only_task();
    assert_eq!(retry(&mut w, "op", 1, &open), refused("invalid_request"));
    w.say("p", &completed(1));
    assert_eq!(retry(&mut w, "op", 2, &open), refused("invalid_request"), "its end is being written");
    assert_eq!(retry(&mut w, "op", 3, &open), refused("invalid_request"));
    for unknown in ["00000000-0000-7000-8000-000000000000", "nonsense"] {
        assert_eq!(retry(&mut w, "op", 4, unknown), refused("invalid_request"));
    }
    assert_eq!(w.disk.tasks.len(), 1);
}

#[test]
fn a_cancelled_task_is_made_again_and_one_whose_call_is_not_kept_is_not() {
    let mut w = world();
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("c", &cancel(1));
    w.write();
    let old = w.only_task();
    w.all_heard();
    let stored = w.disk.tasks.values_mut().next().unwrap();
    let kept = std::mem::take(&mut stored.new.call);
    assert_eq!(retry(&mut w, "op", 1, &old), refused("invalid_request"));
    w.disk.tasks.values_mut().next().unwrap().new.call = kept;
    assert!(retry(&mut w, "op", 2, &old).is_ok());
}

#[test]
fn who_is_no_operator_has_nothing_made_again() {
    let mut w = world();
    let old = failed_task(&mut w);
    assert_eq!(retry(&mut w, "c", 9, &old), refused("unauthorized"), "not even its owner by *");
    assert_eq!(retry(&mut w, "star", 1, &old), refused("unauthorized"), "* leaves it out");
    assert_eq!(retry(&mut w, "half", 1, &old), refused("invalid_request"), "another's is as good as unknown");
    assert_eq!(w.disk.tasks.len(), 1);
}

#[test]
fn an_operator_gives_the_owner_no_right_that_it_has_lost() {
    let mut w = world();
    let old = failed_task(&mut w);
    w.input(agent_reach_core::Input::SetPolicy(rules(&["other"])));
    w.all_heard();
    assert_eq!(retry(&mut w, "op", 1, &old), refused("unauthorized"));
    w.input(agent_reach_core::Input::SetPolicy(rules(&["echo"])));
    assert!(retry(&mut w, "op", 2, &old).is_ok());
}

#[test]
fn while_a_retry_is_open_there_is_no_second_one_and_a_retry_that_failed_can_be_made_again() {
    let mut w = world();
    let old = failed_task(&mut w);
    ask_retry(&mut w, "op", 1, &old);
    ask_retry(&mut w, "op", 2, &old);
    w.write();
    let said = w.heard("op");
    assert_eq!(said.iter().filter(|line| line.contains("invalid_request")).count(), 1, "{said:?}");
    assert_eq!(w.disk.tasks.len(), 2);
    let first = w.disk.tasks.values().find(|task| task.new.retry_of.is_some()).unwrap().new.clone();
    fail(&mut w, 2);
    w.all_heard();
    let again = retry(&mut w, "op", 3, &first.id.to_string()).unwrap();
    assert_eq!(again["retry_of"].as_str(), Some(&*first.id.to_string()));
    let newest = w.disk.tasks.values().find(|task| task.new.retry_of == Some(first.id)).unwrap();
    assert_ne!(newest.new.request_id, first.request_id);
    assert_eq!(newest.new.request_id.len(), first.request_id.len(), "the marks do not pile up");
}

#[test]
fn a_retry_survives_a_restart_and_still_says_what_it_repeats() {
    let mut w = world();
    let old = failed_task(&mut w);
    w.lose("p");
    ask_retry(&mut w, "op", 1, &old);
    w.write();
    let new = answer(&mut w, "op").unwrap()["task_id"].as_str().unwrap().to_owned();
    w.crash(Settings { started_unix_ms: 2_000_000, ..Settings::default() });
    w.join("op", caller("op"));
    assert_eq!(retry(&mut w, "op", 1, &old), refused("invalid_request"), "dev grants it; another's it stays");
    w.join("c", caller("c"));
    w.all_heard();
    let again = retry(&mut w, "c", 2, &old);
    assert_eq!(again, refused("invalid_request"), "the retry is open");
    w.join("p", provider("p", "echo"));
    w.write();
    let given = w.heard("p");
    assert!(given[0].contains("CALL 1") && given.len() == 1, "{given:?}");
    w.say("p", &completed(1));
    w.write();
    let home = w.heard("c");
    assert!(home.iter().any(|line| line.contains("RESULT - completed")), "{home:?}");
    assert_eq!(w.disk.tasks[&new.parse().unwrap()].new.retry_of.unwrap().to_string(), old);
}

#[test]
fn a_store_that_cannot_write_the_retry_is_told_to_the_operator_and_nothing_runs() {
    let mut w = world();
    let old = failed_task(&mut w);
    ask_retry(&mut w, "op", 1, &old);
    w.answer();
    w.refuse_writing();
    assert_eq!(answer(&mut w, "op"), refused("overloaded"));
    assert_eq!(w.heard("p"), Vec::<String>::new());
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().open_bytes), (0, 0));
}

#[test]
fn an_operator_that_is_gone_meanwhile_leaves_the_retry_running() {
    let mut w = world();
    let old = failed_task(&mut w);
    ask_retry(&mut w, "op", 1, &old);
    w.answer();
    w.lose("op");
    w.write();
    assert_eq!(w.heard("p").len(), 1);
    assert_eq!(w.hub.gauges().tasks, [1, 0, 0]);
}

#[test]
fn a_retry_is_an_act_of_who_had_it_made() {
    let mut w = world();
    let old = failed_task(&mut w);
    w.take_facts();
    let new = retry(&mut w, "op", 1, &old).unwrap()["task_id"].as_str().unwrap().to_owned();
    let acts: Vec<String> = w
        .take_facts()
        .iter()
        .filter_map(|fact| {
            let Fact::Act { capability, agent, subject, .. } = fact else { return None };
            Some(format!("{agent} {capability} {subject}"))
        })
        .collect();
    assert_eq!(acts, [format!("op hub.tasks.retry {old} as {new}")]);
}
