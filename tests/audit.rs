//! The audit of a whole hub: every call once, every event with the fields that its page promises, an ill disk, a stop.
#![cfg(test)]

#[macro_use]
mod raw;
mod command;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use command::Running;
use raw::certs::Identity;
use raw::client::RawClient;
use raw::dial::Dial;
use raw::{Hub, hub, kind};
use rmpv::Value;
use serde_json::{Map, Value as Json};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// So long that what is written before is written for another reason.
const SLOW: &str = "[audit]\nflush_ms = 60000\n";

type Line = Map<String, Json>;

fn file_of(hub: &Hub) -> PathBuf {
    hub.dir().join("audit.jsonl")
}

fn lines_of(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "every line has its end");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Stops the hub with SIGTERM, and gives what it has written.
fn stopped(hub: &mut Hub) -> Vec<Line> {
    hub.terminate();
    assert_eq!(hub.exited().code(), Some(0));
    lines_of(&file_of(hub))
}

fn of_event<'a>(lines: &'a [Line], event: &str) -> Vec<&'a Line> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn text<'a>(line: &'a Line, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_else(|| panic!("no text {field} in {line:?}"))
}

/// The keys of the examples in the page, by event.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/audit.md")).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("{\"time\""));
    let read = |line| serde_json::from_str::<Line>(line).unwrap();
    lines.map(read).map(|line| (text(&line, "event").to_owned(), line.keys().cloned().collect())).collect()
}

/// What happens in a short life of a hub: a call each way that one can end, registrations, refusals, an act.
async fn life(hub: &Hub) {
    let mut orders = hub.agent("orders", &["order.create"]).await;
    let mut shop = hub.agent("shop", &[]).await;
    let header = |request_id: &str| map! {"request_id" => request_id, "traceparent" => TRACEPARENT};
    let id = shop.call("order.create", header("good"), Value::from("a body")).await;
    orders.echo().await;
    shop.completed(id).await;
    let id = shop.call("order.create", header("bad"), Value::Nil).await;
    let call = orders.taken().await;
    orders.fail(&call, map! {"code" => "handler_error", "message" => "no", "retryable" => false}).await;
    shop.failed(id, "handler_error").await;
    let id = shop.call("made.up", header("refused"), Value::Nil).await;
    shop.failed(id, "no_capability").await;
    let id = shop.call("hub.stats", header("own"), Value::Nil).await;
    shop.completed(id).await;
    task(&mut shop, &mut orders).await;

    let mut stranger = hub.connect_with("billing", orders.format, &hub.identity("orders")).await;
    stranger.hello(&[], map! {}).await;
    stranger.expect_goodbye("unauthorized", raw::STAY_AWAY).await;
    // Of an authority that has the same name as the hub's, and another key.
    let other = hub::prepared(hub::OPEN, "");
    let forged = Identity::issue("orders", other.path());
    assert!(Dial::new(hub).identity(forged).open().await.is_err());

    let mut ops = hub.agent("ops", &[]).await;
    let id = ops.call("hub.config.reload", map! {}, Value::Nil).await;
    ops.completed(id).await;
    let _newer = hub.agent("orders", &["order.create"]).await;
    orders.expect_goodbye("replaced", raw::STAY_AWAY).await;
    let id = ops.call("hub.agents.disconnect", map! {}, map! {"agent_id" => "orders"}).await;
    ops.completed(id).await;
}

async fn task(shop: &mut RawClient, orders: &mut RawClient) {
    let id = shop.call("order.create", map! {"mode" => "task", "request_id" => "task"}, Value::Nil).await;
    let task_id = shop.accepted(id).await.text("task_id").to_owned();
    let call = orders.taken().await;
    orders.complete(&call, Value::Nil).await;
    // The provider's phase one may be told of on the way.
    while shop.envelope("the task's RESULT").await.kind != kind::RESULT {}
    shop.send(kind::RECEIPT, map! {"task_id" => task_id}, Value::Nil).await;
    shop.fence().await;
}

#[tokio::test]
async fn every_event_of_a_hub_is_there_once_with_the_fields_of_the_page() {
    let mut hub = Hub::serve(hub::OPEN, SLOW);
    life(&hub).await;
    let lines = stopped(&mut hub);

    let documented = documented();
    for line in &lines {
        let keys: BTreeSet<String> = line.keys().filter(|key| *key != "task_id").cloned().collect();
        assert_eq!(keys, documented[text(line, "event")], "{line:?}");
        assert_eq!(
            line.contains_key("task_id"),
            line.get("mode").is_some_and(|mode| mode == "task"),
            "{line:?}"
        );
    }
    let met: BTreeSet<&str> = lines.iter().map(|line| text(line, "event")).collect();
    let expected: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    assert_eq!(met, expected);
    assert_eq!((text(&lines[0], "event"), text(&lines[lines.len() - 1], "event")), ("started", "stopped"));
    assert_eq!(of_event(&lines, "started").len() + of_event(&lines, "stopped").len(), 2);
    let times: Vec<&str> = lines.iter().map(|line| text(line, "time")).collect();
    assert!(times.iter().all(|time| time.len() == 24 && time.ends_with('Z')), "{times:?}");

    let orders = hub.identity("orders").name();
    let whom = |event: &str| -> Vec<(String, String)> {
        let named = |line: &&Line| (text(line, "identity").to_owned(), text(line, "agent_id").to_owned());
        of_event(&lines, event).iter().map(named).collect()
    };
    assert_eq!(whom("registered").iter().map(|(_, id)| &**id).collect::<Vec<_>>(), ["orders", "shop", "ops"]);
    assert_eq!(whom("replaced"), [(orders.clone(), "orders".to_owned())]);
    let left: BTreeSet<(&str, &str)> =
        of_event(&lines, "left").iter().map(|line| (text(line, "agent_id"), text(line, "reason"))).collect();
    assert!(left.contains(&("orders", "operator")), "{left:?}");

    let refused: Vec<_> = of_event(&lines, "refused")
        .iter()
        .map(|line| (text(line, "identity"), line["agent_id"].as_str(), text(line, "reason")))
        .collect();
    let by_hello = (&*orders, Some("billing"), "unauthorized");
    assert_eq!(refused, [by_hello, (&*orders, None, "certificate_invalid")]);

    let ops = hub.identity("ops").name();
    let said = |line: &&Line| {
        ["caller", "identity", "capability", "subject"].map(|field| text(line, field).to_owned())
    };
    let acts: Vec<_> = of_event(&lines, "act").iter().map(said).collect();
    let expected =
        [["ops", &*ops, "hub.config.reload", "hub"], ["ops", &*ops, "hub.agents.disconnect", "orders"]];
    assert_eq!(acts, expected);
    let [reload] = of_event(&lines, "reload")[..] else { panic!("one reload") };
    assert_eq!((text(reload, "trigger"), text(reload, "outcome")), ("call", "completed"));
    assert_eq!((&reload["changed"], &reload["policy_version"]), (&Json::Array(vec![]), &1.into()));
}

#[tokio::test]
async fn a_call_s_line_says_who_whom_what_and_how_it_ended_and_nothing_of_its_body() {
    let mut hub = Hub::serve(hub::OPEN, SLOW);
    life(&hub).await;
    let lines = stopped(&mut hub);
    let calls = of_event(&lines, "call");
    let one = |request_id: &str| {
        let found: Vec<&&Line> = calls.iter().filter(|line| line["request_id"] == request_id).collect();
        assert_eq!(found.len(), 1, "{request_id}");
        *found[0]
    };
    let table = [
        ("good", Some("orders"), "order.create", "call", 1, "completed"),
        ("bad", Some("orders"), "order.create", "call", 1, "handler_error"),
        ("refused", None, "made.up", "call", 0, "no_capability"),
        ("own", Some("hub"), "hub.stats", "call", 1, "completed"),
        ("task", Some("orders"), "order.create", "task", 1, "completed"),
    ];
    let mut ids = BTreeSet::new();
    for (request_id, target, capability, mode, attempt, outcome) in table {
        let line = one(request_id);
        assert_eq!((text(line, "caller"), line["target"].as_str()), ("shop", target), "{line:?}");
        let said = ["capability", "mode", "outcome"].map(|field| text(line, field));
        assert_eq!(
            (said, line["attempt"].as_u64()),
            ([capability, mode, outcome], Some(attempt)),
            "{line:?}"
        );
        assert!(line["ms"].as_u64().is_some_and(|ms| ms < 60_000), "{line:?}");
        let trace = (mode == "call").then_some("0af7651916cd43dd8448eb211c80319c");
        assert_eq!(line["trace_id"].as_str(), trace, "{line:?}");
        assert!(ids.insert(text(line, "call_id")), "{line:?}");
    }
    let all = fs::read_to_string(file_of(&hub)).unwrap();
    assert!(!all.contains("a body"), "bodies are in no line");

    // The store keeps records of calls that agents had, and of those that were refused.
    let kept = command::run(hub.dir(), &["store", "export", "--path", "agent-reach.db"]).json_lines();
    let recorded: Vec<&str> = kept.iter().filter_map(|line| line["record"]["request_id"].as_str()).collect();
    assert_eq!(recorded, ["good", "bad", "refused", "task"]);
}

#[tokio::test]
async fn records_and_audit_can_each_be_had_without_the_other() {
    for (config, audited, recorded) in [
        ("[audit]\nflush_ms = 60000\n[store]\nrecords = false\n", true, 0),
        ("[audit]\nenabled = false\n", false, 1),
        ("[audit]\nenabled = false\n[store]\nrecords = false\n", false, 0),
    ] {
        let mut hub = Hub::serve(hub::OPEN, config);
        let mut provider = hub.agent("p", &["echo"]).await;
        let mut caller = hub.agent("c", &[]).await;
        numbered(&mut caller, &mut provider, 0..1).await;
        hub.terminate();
        assert_eq!(hub.exited().code(), Some(0));
        assert_eq!(file_of(&hub).exists(), audited, "{config}");
        if audited {
            assert_eq!(of_event(&lines_of(&file_of(&hub)), "call").len(), 1);
        }
        let kept = command::run(hub.dir(), &["store", "export", "--path", "agent-reach.db"]).json_lines();
        assert_eq!(kept.len(), recorded, "{config}");
    }
}

/// Calls with these numbers as their request ids, many on their way at once.
async fn numbered(caller: &mut RawClient, provider: &mut RawClient, numbers: std::ops::Range<u32>) {
    const WINDOW: usize = 100;
    let numbers: Vec<u32> = numbers.collect();
    for part in numbers.chunks(WINDOW) {
        for number in part {
            caller.call("echo", map! {"request_id" => format!("n-{number}")}, Value::from(*number)).await;
        }
        for _ in part {
            provider.echo().await;
        }
        for _ in part {
            assert_eq!(caller.envelope("a RESULT").await.kind, kind::RESULT);
        }
    }
}

#[tokio::test]
async fn of_thousands_of_calls_each_has_one_line_though_files_rotate_and_the_hub_is_told_to_stop() {
    const CALLS: u32 = 3000;
    let rotating = "[audit]\nflush_ms = 60000\nrotate_bytes = 65536\nkeep = 100\n";
    let mut hub = Hub::serve(hub::OPEN, rotating);
    let mut provider = hub.agent_with("p", &["echo"], map! {"max_concurrency" => 200}).await;
    let mut caller = hub.agent("c", &[]).await;
    numbered(&mut caller, &mut provider, 0..CALLS).await;
    let last = stopped(&mut hub);
    assert_eq!(last[last.len() - 1]["dropped"], 0);
    let read = command::run(hub.dir(), &["audit", "--file", "audit.jsonl", "--event", "call", "--json"]);
    assert_eq!((read.code, &*read.stderr), (Some(0), ""));
    let lines = read.json_lines();
    assert_eq!(lines.len(), CALLS as usize);
    let order: Vec<&str> = lines.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
    assert_eq!(order, (0..CALLS).map(|number| format!("n-{number}")).collect::<Vec<_>>());
    assert!(lines.iter().all(|line| line["outcome"] == "completed" && line["target"] == "p"));
    let sizes: Vec<u64> = fs::read_dir(hub.dir())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("audit.jsonl")))
        .map(|entry| entry.metadata().unwrap().len())
        .collect();
    assert!(sizes.len() > 5 && sizes.iter().all(|size| *size <= 65_536), "{sizes:?}");
}

#[tokio::test]
async fn a_second_signal_loses_no_line_either() {
    let mut hub = Hub::serve(hub::OPEN, SLOW);
    let mut provider = hub.agent("p", &["echo"]).await;
    let mut caller = hub.agent("c", &[]).await;
    numbered(&mut caller, &mut provider, 0..10).await;
    // Keeps the drain from ending.
    caller.call("echo", map! {}, Value::Nil).await;
    provider.taken().await;
    hub.terminate();
    caller.expect(kind::GOODBYE, "GOODBYE draining").await;
    hub.terminate();
    assert_eq!(hub.exited().code(), Some(130));
    let lines = lines_of(&file_of(&hub));
    assert_eq!(text(&lines[lines.len() - 1], "event"), "stopped");
    let completed = of_event(&lines, "call").iter().filter(|line| line["outcome"] == "completed").count();
    assert_eq!(completed, 10);
}

/// How many lines the metrics say were dropped.
async fn dropped(hub: &Hub) -> f64 {
    let page = raw::http::get(hub.metrics(), "/metrics").await.body;
    let line = page.lines().find_map(|line| line.strip_prefix("agent_reach_audit_dropped_total "));
    line.expect("the metric").parse().expect("a number")
}

#[tokio::test]
async fn an_ill_disk_loses_lines_that_are_counted_and_told_once_and_is_taken_up_again_by_itself() {
    let mut hub = Hub::serve(hub::OPEN, "[audit]\nflush_ms = 1\n");
    let mut provider = hub.agent("p", &["echo"]).await;
    let mut caller = hub.agent("c", &[]).await;
    assert_eq!(dropped(&hub).await, 0.0);
    // Nobody may write to a folder, not even root.
    let file = file_of(&hub);
    fs::rename(&file, hub.dir().join("elsewhere")).unwrap();
    fs::create_dir(&file).unwrap();
    for round in 1..=2 {
        numbered(&mut caller, &mut provider, 10 * round..10 * round + 10).await;
        let least = f64::from(10 * round);
        raw::within("the count of dropped lines", async { while dropped(&hub).await < least {} }).await;
    }
    fs::remove_dir(&file).unwrap();
    numbered(&mut caller, &mut provider, 100..110).await;
    let at_last = dropped(&hub).await;
    let lines = stopped(&mut hub);
    assert_eq!(of_event(&lines, "call").len(), 10);
    assert_eq!(lines[lines.len() - 1]["dropped"].as_f64(), Some(at_last));
    let log = hub.log();
    let told = |sentence: &str| log.matches(sentence).count();
    assert_eq!(
        (told("the audit cannot be written"), told("the audit can be written again")),
        (1, 1),
        "{log}"
    );
}

#[tokio::test]
async fn what_is_written_is_followed_through_a_rotation_and_narrowed_down() {
    let hub = Hub::serve(hub::OPEN, "[audit]\nflush_ms = 1\nrotate_bytes = 4096\nkeep = 50\n");
    let arguments = ["audit", "--file", "audit.jsonl", "--follow", "--json", "--capability", "echo"];
    let following = Running::start(hub.dir(), &arguments);
    let mut provider = hub.agent_with("p", &["echo"], map! {"max_concurrency" => 200}).await;
    let mut caller = hub.agent("c", &[]).await;
    for round in 0..3 {
        let numbers = 50 * round..50 * round + 50;
        numbered(&mut caller, &mut provider, numbers.clone()).await;
        // Each is seen before the next round rotates further.
        for number in numbers {
            let line: Json = serde_json::from_str(&following.line().expect("a line")).unwrap();
            assert_eq!(line["request_id"], format!("n-{number}"));
        }
    }
    assert!(hub.dir().join("audit.jsonl.1").exists());
    following.interrupt();
    assert_eq!(following.ended().code, Some(0));
}

/// Waits until a hub that writes at once has written such a line.
async fn written(hub: &Hub, is_it: impl Fn(&Line) -> bool) -> Line {
    raw::within("a line of the audit", async {
        loop {
            // What is being written may have no end yet.
            let text = fs::read_to_string(file_of(hub)).unwrap();
            let whole = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
            if let Some(found) = whole.into_iter().find(|line| is_it(line)) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn reloads_are_told_with_what_asked_for_them_and_what_came_of_it() {
    let hub = Hub::serve(hub::OPEN, "[audit]\nflush_ms = 1\n");
    let status = std::process::Command::new("kill").args(["-HUP", &hub.pid().to_string()]).status().unwrap();
    assert!(status.success());
    let reload = |trigger, outcome| {
        move |line: &Line| {
            line["event"] == "reload" && line["trigger"] == trigger && line["outcome"] == outcome
        }
    };
    let line = written(&hub, reload("signal", "completed")).await;
    assert_eq!((&line["changed"], &line["policy_version"]), (&Json::Array(vec![]), &1.into()));
    let replace = |policy: &str| {
        fs::write(hub.dir().join("new"), policy).unwrap();
        fs::rename(hub.dir().join("new"), hub.dir().join("policy.toml")).unwrap();
    };
    replace(&hub::OPEN.replace("version = 1", "version = 2"));
    let line = written(&hub, reload("file", "completed")).await;
    assert_eq!((&line["changed"], &line["policy_version"]), (&serde_json::json!(["policy.file"]), &2.into()));
    assert!(line["problem"].is_null());
    replace("version = 3\n[[rules]]\nidentity = 5\n");
    let line = written(&hub, reload("file", "failed")).await;
    assert_eq!(line["policy_version"], 2, "the old one counts");
    assert!(text(&line, "problem").contains("policy.toml:3"), "{line:?}");
}
