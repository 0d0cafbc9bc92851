//! Every scenario runs against a real hub and reports its figures. How large they are is not looked at: the hub is
//! not optimised, and the machine is shared.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The hub that was built beside the load tool.
fn hub() -> PathBuf {
    let hub = Path::new(env!("CARGO_BIN_EXE_loadtest")).with_file_name("agent-reach");
    assert!(hub.is_file(), "{} is not there: cargo build --bin agent-reach", hub.display());
    hub
}

fn loadtest(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command.args(arguments.split_whitespace()).arg("--hub").arg(hub());
    command.output().expect("the load tool")
}

/// A finished run: its JSON, which stays as long as this does, and what it printed.
struct Done {
    dir: TempDir,
    report: Value,
    printed: String,
}

impl Done {
    /// Runs a scenario once.
    fn of(arguments: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let json = dir.path().join("report.json");
        let output = loadtest(&format!("{arguments} --repeats 1 --json {}", json.display()));
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        let report = serde_json::from_slice(&std::fs::read(json).expect("the JSON")).expect("JSON");
        Self { dir, report, printed }
    }

    fn json(&self) -> PathBuf {
        self.dir.path().join("report.json")
    }

    /// The figure of this name, which is also in the table.
    fn figure(&self, name: &str) -> f64 {
        assert!(self.printed.contains(name), "{name} is not in the table:\n{}", self.printed);
        let figures = self.report["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|figure| figure["name"] == name);
        let median = figure.and_then(|figure| figure["median"].as_f64());
        median.unwrap_or_else(|| panic!("no {name} in {figures:#?}"))
    }

    fn are_positive(&self, names: &[&str]) {
        for name in names {
            assert!(self.figure(name) > 0.0, "{name}: {}", self.figure(name));
        }
    }
}

const CALL: &str = "call --agents 4 --callers 2 --in-flight 1,4 --seconds 0.2";

#[test]
fn call_measures_hub_and_relay_and_their_ratio() {
    let done = Done::of(CALL);
    for server in ["hub", "relay"] {
        for in_flight in [1, 4] {
            let name = |what: &str| format!("{server}, {in_flight} in flight: {what}");
            for what in ["CPU for each call", "calls", "p50", "p99", "p99.9", "memory then"] {
                done.are_positive(&[&name(what)]);
            }
        }
    }
    done.are_positive(&["hub over relay, 4 in flight: CPU", "hub over relay, 1 in flight: p50"]);
}

#[test]
fn call_measures_what_audit_and_records_cost() {
    let done = Done::of("call --agents 4 --callers 2 --in-flight 4 --seconds 0.2 --no-relay --audit");
    for server in ["hub", "hub without audit and records"] {
        done.are_positive(&[&format!("{server}, 4 in flight: CPU for each call")]);
    }
    for what in ["CPU", "p50"] {
        done.are_positive(&[&format!("audit and records over none, 4 in flight: {what}")]);
    }
}

#[test]
fn a_run_on_one_core_holds_the_lone_round_trip_to_its_bar() {
    let done = Done::of("call --agents 2 --callers 1 --in-flight 1 --seconds 0.2 --pin 0");
    assert_eq!(done.report["load"]["pin"], 0);
    let ratio = "hub over relay, 1 in flight: p50";
    let figures = done.report["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|figure| figure["name"] == ratio).expect("the ratio");
    assert_eq!(figure["bar"]["limit"], 2.0);
}

#[test]
fn relay_measures_the_floor_alone() {
    let done = Done::of("relay --agents 2 --callers 1 --in-flight 2 --seconds 0.2");
    done.are_positive(&["relay, 2 in flight: CPU for each call", "relay, 2 in flight: p99"]);
    assert!(!done.printed.contains("\nhub, "), "{}", done.printed);
}

#[test]
fn idle_measures_memory_keepalives_and_what_traffic_leaves() {
    let done =
        Done::of("idle --agents 24 --groups 4 --settle 0.1 --seconds 0.4 --keepalive-ms 100 --traffic 2000");
    for server in ["hub", "relay"] {
        for what in ["CPU for each keepalive", "keepalives", "memory, empty", "memory, full"] {
            done.are_positive(&[&format!("{server}: {what}")]);
        }
        assert!(done.figure(&format!("{server}: memory for each connection")).is_finite());
        assert!(done.figure(&format!("{server}: kernel memory for each socket")).is_finite());
    }
    assert!(done.figure("hub: memory for each after a call of 2000 B to each").is_finite());
    done.are_positive(&["hub: memory, at most", "hub: memory, after all have left"]);
}

#[test]
fn storm_measures_connects_and_the_memory_that_they_leave() {
    let done = Done::of("storm --agents 24 --at-a-time 12 --settle 0.1");
    done.are_positive(&[
        "relay: CPU for each connect",
        "hub: CPU for each connect",
        "hub: connects",
        "hub over relay: CPU",
        "hub: memory, full",
        "memory after all have left, over empty",
        "memory with all, storm over no storm",
        "memory after all have left, storm over no storm",
    ]);
}

#[test]
fn fanout_measures_deliveries_one_message_at_a_time_and_in_bursts() {
    let done = Done::of("fanout --agents 10 --burst 1,5 --seconds 0.3");
    for burst in [1, 5] {
        for server in ["hub", "relay"] {
            let name = |what: &str| format!("{server}, {burst} at a time: {what}");
            for what in ["CPU for each delivery", "deliveries", "p50 until all have it"] {
                done.are_positive(&[&name(what)]);
            }
        }
        done.are_positive(&[&format!("hub over relay, {burst} at a time: CPU")]);
    }
}

#[test]
fn stream_measures_chunks() {
    let done = Done::of("stream --agents 3 --callers 2 --streams 1,4 --chunks 40 --seconds 0.3");
    for streams in [1, 4] {
        for server in ["hub", "relay"] {
            let name = |what: &str| format!("{server}, {streams} streams: {what}");
            done.are_positive(&[&name("CPU for each chunk"), &name("chunks"), &name("memory then")]);
        }
    }
}

#[test]
fn mixed_gets_every_number_back_once_whoever_comes_goes_or_does_not_read() {
    let done = Done::of("mixed --agents 3 --callers 2 --window 4 --fleeting 2 --seconds 1.5");
    done.are_positive(&[
        "calls of all kinds",
        "chunks",
        "agents that came and went",
        "keepalives of those that stayed",
        "plain call: p99",
        "numbers: came back",
        "callers that did not read, ended by the hub",
    ]);
    let sent = done.figure("numbers: sent");
    assert!(
        (sent - done.figure("numbers: came back") - done.figure("numbers: lost with their agents")).abs()
            < 0.5
    );
    for what in ["failed", "wrong", "twice", "missing"] {
        assert!(done.figure(&format!("numbers: {what}")) < 0.5, "{what}: {}", done.printed);
    }
}

#[test]
fn queue_loses_no_call_and_measures_waits_and_empty_slots() {
    let done = Done::of("queue --callers 6 --calls 20 --slots 2 --work-ms 2");
    done.are_positive(&[
        "ACCEPT after its slot was free: p50",
        "ACCEPT after its slot was free: p99.9",
        "slot empty between two calls: p50",
        "slots taken",
        "work as the agent's timer made it",
        "all calls, over those slots never empty",
        "ACCEPT after CALL: p99",
        "all were sent after",
        "hub: CPU for each call",
        "hub: memory, at most",
    ]);
    assert!(done.figure("slots taken") <= 100.0, "{}", done.printed);
    assert!(done.figure("work as the agent's timer made it") >= 2.0, "{}", done.printed);
    // Six callers with all of theirs, less what the slots take at once.
    assert!(done.figure("queue: at most") <= 118.0, "{}", done.printed);
    assert!(done.figure("calls that overtook one of the same caller") < 0.5, "{}", done.printed);
}

#[test]
fn policy_measures_the_slowest_calls_under_both_and_who_got_them() {
    let done = Done::of("policy --work-us 2000,2000,20000 --hands 1 --rate 300 --calls 120");
    for policy in ["least_loaded", "round_robin"] {
        for what in ["p50", "p99", "p99.9", "calls of agent 1, 2000 us each"] {
            done.are_positive(&[&format!("{policy}: {what}")]);
        }
    }
    let slow = |policy: &str| done.figure(&format!("{policy}: calls of agent 3, 20000 us each"));
    assert!((slow("round_robin") - 33.3).abs() < 0.1, "{}", done.printed);
    assert!(slow("least_loaded") < slow("round_robin"), "{}", done.printed);
    done.are_positive(&["least_loaded over round_robin: p99"]);
}

#[test]
fn deaf_measures_memory_and_the_calls_of_a_canary() {
    // More than the sockets on the way to a reader hold by themselves, with the hub's own queue.
    let done = Done::of("deaf --aimed 32 --result 200000 --outbound 1 --quiet 0.1");
    // Whether a reader keeps up is the machine's matter.
    assert!(done.figure("results, read: sent by the agent") >= 30.5, "{}", done.printed);
    for about in ["results", "a stream"] {
        let name = |what: &str| format!("{about}: {what}");
        let least = done.figure(&name("sent by the agent"));
        assert!(least >= 7.6, "{about}: {least}");
        for what in ["readers that the hub ended", "canary before: p99", "canary meanwhile: calls"] {
            done.are_positive(&[&name(what)]);
        }
        done.are_positive(&[&name("canary: p99, meanwhile over before")]);
        assert!(done.figure(&name("readers that could not come")) < 0.5, "{}", done.printed);
    }
}

#[test]
fn a_run_beside_an_older_one_prints_ratios_and_refuses_one_of_another_load() {
    let short = "relay --agents 2 --callers 1 --in-flight 2 --seconds 0.1";
    let older = Done::of(short);
    let json = older.json();
    let beside = Done::of(&format!("{short} --compare {}", json.display()));
    assert!(beside.printed.contains("new/old"), "{}", beside.printed);

    let refused = |arguments: &str| {
        let output = loadtest(&format!("{arguments} --compare {}", json.display()));
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let other_load = refused("relay --agents 3 --callers 1 --in-flight 2");
    assert!(other_load.contains("agents was 2, now it is 3"), "{other_load}");
    let other_scenario = refused(CALL);
    assert!(other_scenario.contains("of `relay`, this one is of `call`"), "{other_scenario}");
    std::fs::write(&json, "{}").expect("written");
    let no_report = refused(short);
    assert!(no_report.contains("is no report of this program"), "{no_report}");
}

#[test]
fn what_cannot_be_measured_is_said_in_a_sentence() {
    let refused = |command: &mut Command| {
        let output = command.output().expect("the load tool");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let tool = || Command::new(env!("CARGO_BIN_EXE_loadtest"));
    let no_hub = refused(tool().args(["call", "--hub", "/nowhere/agent-reach"]));
    assert!(no_hub.contains("/nowhere/agent-reach is not there: build it"), "{no_hub}");
    let no_core = refused(tool().args(["call", "--pin", "1000000"]));
    assert!(no_core.contains("core 1000000"), "{no_core}");
}

#[test]
fn tasks_are_accepted_kept_through_a_restart_and_removed_and_ids_have_a_price() {
    let done = Done::of(
        "tasks --callers 2 --window 8 --agents 4 --in-flight 4 --open 200 --ended 20000 --seconds 0.3",
    );
    for load in ["accepts alone", "with workers"] {
        done.are_positive(&[&format!("{load}: tasks accepted")]);
        for pace in ["as fast as it goes", "half that rate"] {
            done.are_positive(&[
                &format!("{load}, {pace}: ACCEPT p99"),
                &format!("{load}, {pace}: CPU for each task"),
            ]);
        }
    }
    done.are_positive(&["with workers: tasks ended"]);
    assert_eq!(done.figure("restart: open tasks"), 200.0);
    done.are_positive(&["restart: exec to the first answered call", "restart: memory after"]);
    // None may have been due in so short a time: the sweep rests for much longer than it works.
    assert!(done.figure("expiry: tasks removed meanwhile") >= 0.0);
    done.are_positive(&["expiry: p99 of calls, over that without"]);
    done.are_positive(&["ids: CPU for each call, kept in memory over not kept"]);
}

#[test]
fn many_agents_are_governed_by_new_files_and_none_is_lost() {
    let done = Done::of("reload --agents 20 --groups 4");
    done.are_positive(&[
        "a new policy: from the signal to its rules",
        "a new policy: canary's longest call",
        "a new revocation list: from the signal until all are judged",
    ]);
}
