//! The hub is killed under a load of numbered tasks, at points counted in what its peers have seen: nothing accepted
//! is lost, nothing is made twice, and what may have run and is not known says so.
//!
//! Callers and workers do what SDKs do: callers send again what was not accepted, workers keep their `instance` through
//! reconnects and answer a repeated CALL from what they remember. A worker that is another instance has forgotten all.
#![cfg(test)]

#[macro_use]
mod raw;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use raw::client::RawClient;
use raw::hub::OPEN;
use raw::value::Envelope;
use raw::{Dial, Format, Hub, Incoming, kind};
use rmpv::Value;
use tokio::task::{JoinSet, LocalSet};

/// The callers and what they speak.
const CALLERS: [(&str, Format); 4] = [
    ("caller-0", Format::MsgPack),
    ("caller-1", Format::MsgPack),
    ("caller-2", Format::MsgPack),
    ("caller-3", Format::Json),
];
const WORKERS: [&str; 3] = ["worker-0", "worker-1", "worker-2"];
/// Numbers of each caller.
const NUMBERS: u64 = 120;
/// Open tasks of each caller.
const WINDOW: usize = 12;
/// Slots of a worker: fewer than there are open tasks, so that some wait in the hub.
const SLOTS: u64 = 4;
/// How often the hub is killed.
const KILLS: usize = 6;
/// Most that is seen between a start and the kill.
const APART: u64 = 130;

/// What the peers see of a task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A caller: its ACCEPT.
    Accepted,
    /// A worker: its CALL.
    Given,
    /// A caller: its RESULT.
    Ended,
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What is known of one number.
#[derive(Debug, Default)]
struct Task {
    task_id: Option<String>,
    /// Status, error code and content: the same however often it comes.
    end: Option<(String, String, Value)>,
    /// Instances that ran it.
    ran: BTreeSet<String>,
    /// Attempts that workers were given, each with the number of the connection: one that a worker was given back, and
    /// that was not yet written when the hub was killed again, comes with the same number after it.
    attempts: BTreeSet<(usize, u64)>,
}

/// Whether a number may run twice.
fn idempotent(number: u64) -> bool {
    number.is_multiple_of(2)
}

struct World {
    hub: RefCell<Hub>,
    dice: RefCell<Dice>,
    kills: Cell<usize>,
    /// How much must be seen until the hub is killed, at the first of this kind.
    until: Cell<(u64, Seen)>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    /// How often each worker's process was replaced.
    lives: [Cell<usize>; WORKERS.len()],
    /// Connections of workers so far.
    connections: Cell<usize>,
    /// Callers that wait for nothing more.
    done: Cell<usize>,
}

impl World {
    fn new(seed: u64) -> Rc<Self> {
        let hub = Hub::serve(OPEN, "");
        CALLERS.iter().map(|(name, _)| *name).chain(WORKERS).for_each(|name| drop(hub.identity(name)));
        let world = Self {
            hub: RefCell::new(hub),
            dice: RefCell::new(Dice(seed)),
            kills: Cell::default(),
            until: Cell::new((0, Seen::Accepted)),
            tasks: RefCell::default(),
            lives: Default::default(),
            connections: Cell::default(),
            done: Cell::default(),
        };
        world.next_kill();
        Rc::new(world)
    }

    fn next_kill(&self) {
        let kinds = [Seen::Accepted, Seen::Given, Seen::Ended];
        let apart = 1 + self.dice.borrow_mut().below(APART);
        self.until.set((apart, kinds[self.kills.get() % kinds.len()]));
    }

    /// Somebody has seen something: perhaps the last of this hub.
    fn saw(&self, seen: Seen) {
        let (left, at) = self.until.get();
        self.until.set((left.saturating_sub(1), at));
        if left > 1 || seen != at || self.kills.get() == KILLS {
            return;
        }
        // Nothing else runs meanwhile, so nobody reads what the old hub wrote before it is gone.
        self.hub.borrow_mut().kill_and_start_again();
        let kills = self.kills.get();
        if kills.is_multiple_of(2) {
            let life = &self.lives[kills / 2 % WORKERS.len()];
            life.set(life.get() + 1);
        }
        self.kills.set(kills + 1);
        self.next_kill();
    }

    /// A registered connection of `name`; again from the start when the hub is killed on the way.
    async fn connect(&self, name: &str, format: Format, hello: &Value) -> RawClient {
        for _ in 0..=KILLS {
            let kills = self.kills.get();
            let dial = {
                let hub = self.hub.borrow();
                Dial::new(&hub).identity(hub.identity(name)).protocols(format.subprotocol())
            };
            match dial.open().await {
                Ok(opened) => {
                    let mut client = RawClient::new(opened.stream, name, format);
                    client.hello(&[], hello.clone()).await;
                    match client.next("WELCOME").await {
                        Incoming::Envelope(welcome) if welcome.kind == kind::WELCOME => return client,
                        Incoming::Close(_) | Incoming::End if self.kills.get() > kills => {}
                        other @ (Incoming::Envelope(_)
                        | Incoming::Ping(_)
                        | Incoming::Pong(_)
                        | Incoming::Close(_)
                        | Incoming::End) => panic!("{name} was sent {other:?}"),
                    }
                }
                Err(refused) => assert!(self.kills.get() > kills, "{name} was refused: {refused:?}"),
            }
        }
        panic!("{name} could not connect in as many tries as there are kills");
    }

    fn with_task<T>(&self, number: u64, look: impl FnOnce(&mut Task) -> T) -> T {
        look(self.tasks.borrow_mut().entry(number).or_default())
    }

    /// A caller hears the name of a number's task, always the same.
    fn named(&self, number: u64, task_id: &str) {
        let known = self.with_task(number, |task| task.task_id.get_or_insert(task_id.to_owned()).clone());
        assert_eq!(known, task_id, "number {number} became two tasks");
    }

    /// A caller hears the end of a number, always the same. Gives the name of its task.
    fn ended(&self, result: &Envelope) -> (u64, String) {
        let number: u64 = result.text("request_id").parse().expect("a number");
        let task_id = result.text("task_id").to_owned();
        self.named(number, &task_id);
        let code = if result.has("error") { result.code().to_owned() } else { String::new() };
        let end = (result.text("status").to_owned(), code, result.content());
        self.with_task(number, |task| {
            let known = task.end.get_or_insert(end.clone());
            assert_eq!(*known, end, "number {number} ended in two ways");
            if end.0 == "completed" {
                let by = end.2["by"].as_str().expect("who ran it");
                assert!(task.ran.contains(by), "number {number} has a result of {by}, which never ran it");
            } else {
                assert_eq!((&*end.0, &*end.1), ("failed", "agent_lost"), "number {number}: {result:?}");
                assert!(!idempotent(number), "number {number} could have been tried again: {result:?}");
                assert!(!result.retryable(), "its outcome is unknown: {result:?}");
                let message = result.get("error")["message"].as_str().expect("a message");
                assert!(message.contains("unknown"), "{message:?}");
            }
        });
        (number, task_id)
    }
}

async fn receipt(client: &mut RawClient, task_id: &str) {
    client.send(kind::RECEIPT, map! {"task_id" => task_id}, Value::Nil).await;
}

/// Whether an agent of this test has to connect again; other ends of a connection are failures.
fn envelope_of(name: &str, incoming: Incoming) -> Option<Envelope> {
    match incoming {
        Incoming::Envelope(envelope) => Some(envelope),
        Incoming::End => None,
        other @ (Incoming::Ping(_) | Incoming::Pong(_) | Incoming::Close(_)) => {
            panic!("{name} was sent {other:?}")
        }
    }
}

/// A caller: submits its numbers, and is done when each has ended.
struct Caller {
    world: Rc<World>,
    index: usize,
    /// The next number that was never sent.
    next: u64,
    end: u64,
    /// Numbers without an end, and whether their ACCEPT has come.
    open: BTreeMap<u64, bool>,
}

impl Caller {
    fn new(world: &Rc<World>, index: usize) -> Self {
        let next = index as u64 * NUMBERS;
        Self { world: Rc::clone(world), index, next, end: next + NUMBERS, open: BTreeMap::new() }
    }

    async fn run(mut self) {
        let (name, format) = CALLERS[self.index];
        while self.next < self.end || !self.open.is_empty() {
            let mut client = self.world.connect(name, format, &map! {}).await;
            for (number, accepted) in self.open.clone() {
                // Whether a caller that knows its task's name still repeats the CALL is its own choice.
                if !accepted || self.world.dice.borrow_mut().below(2) == 0 {
                    submit(&mut client, number).await;
                }
            }
            self.converse(&mut client).await;
        }
        self.world.done.set(self.world.done.get() + 1);
    }

    /// Until the connection ends, or nothing is left to wait for.
    async fn converse(&mut self, client: &mut RawClient) {
        loop {
            while self.open.len() < WINDOW && self.next < self.end {
                self.open.insert(self.next, false);
                submit(client, self.next).await;
                self.next += 1;
            }
            if self.open.is_empty() {
                return;
            }
            let incoming = client.next("ACCEPT or RESULT").await;
            let Some(envelope) = envelope_of(&client.name, incoming) else { return };
            match envelope.kind {
                kind::ACCEPT => {
                    let number = envelope.text("request_id").parse().expect("a number");
                    self.world.named(number, envelope.text("task_id"));
                    self.open.entry(number).and_modify(|accepted| *accepted = true);
                    self.world.saw(Seen::Accepted);
                }
                kind::RESULT => {
                    let (number, task_id) = self.world.ended(&envelope);
                    self.open.remove(&number);
                    receipt(client, &task_id).await;
                    self.world.saw(Seen::Ended);
                }
                _ => panic!("{} was sent {envelope:?}", client.name),
            }
        }
    }
}

async fn submit(client: &mut RawClient, number: u64) {
    let capability = if idempotent(number) { "many" } else { "once" };
    let header = map! {"mode" => "task", "request_id" => number.to_string(), "retries" => KILLS};
    client.call(capability, header, Value::from(number)).await;
}

/// What a worker's process knows of a number: that it runs, or its result.
type Memory = BTreeMap<String, Option<Value>>;

/// A worker: runs each number once in a life of its process, and works on it until the hub has answered a call.
async fn work(world: Rc<World>, index: usize) {
    let (mut life, mut memory) = (0, Memory::new());
    loop {
        if life != world.lives[index].get() {
            life = world.lives[index].get();
            memory.clear();
        }
        let instance = format!("{}-life-{life}", WORKERS[index]);
        let capabilities =
            Value::Array(vec![map! {"name" => "once"}, map! {"name" => "many", "idempotent" => true}]);
        let hello = map! {
            "instance" => &*instance,
            "capabilities" => capabilities,
            "max_concurrency" => SLOTS,
        };
        let mut client = world.connect(WORKERS[index], Format::MsgPack, &hello).await;
        provide(&world, &mut client, &instance, &mut memory).await;
    }
}

/// Until the connection ends.
async fn provide(world: &World, client: &mut RawClient, instance: &str, memory: &mut Memory) {
    let connection = world.connections.get();
    world.connections.set(connection + 1);
    // What is worked on, by the id of the call that takes as long.
    let mut working: BTreeMap<u64, Envelope> = BTreeMap::new();
    loop {
        let incoming = client.next("a CALL, or the end of work").await;
        let Some(envelope) = envelope_of(&client.name, incoming) else { return };
        match envelope.kind {
            kind::CALL => {
                let request_id = envelope.text("request_id").to_owned();
                let number: u64 = request_id.parse().expect("a number");
                let attempt = (connection, envelope.uint("attempt"));
                let fresh = world.with_task(number, |task| task.attempts.insert(attempt));
                assert!(fresh, "an attempt was given twice: {envelope:?}");
                let known = memory.entry(request_id).or_insert_with(|| {
                    world.with_task(number, |task| task.ran.insert(instance.to_owned()));
                    None
                });
                match known {
                    Some(result) => client.complete(&envelope, result.clone()).await,
                    None => {
                        client.accept(&envelope).await;
                        let id = client.call("hub.stats", map! {}, Value::Nil).await;
                        working.insert(id, envelope);
                    }
                }
                world.saw(Seen::Given);
            }
            kind::RESULT => {
                let call = working.remove(&envelope.uint("id")).expect("an answer of hub.stats");
                let result = map! {"by" => instance, "to" => call.content()};
                memory.insert(call.text("request_id").to_owned(), Some(result.clone()));
                client.complete(&call, result).await;
            }
            kind::CANCEL => panic!("nobody cancels: {envelope:?}"),
            _ => panic!("{} was sent {envelope:?}", client.name),
        }
    }
}

/// The whole list of a caller's tasks. What comes before it is a result that is confirmed; how many those were.
async fn list(world: &World, client: &mut RawClient) -> (Vec<Value>, usize) {
    let (mut rows, mut results) = (Vec::new(), 0);
    loop {
        let before = rows.last().map_or(Value::Nil, |row: &Value| row["task_id"].clone());
        let id = client.call("hub.tasks.list", map! {}, map! {"before" => before}).await;
        let page = loop {
            let envelope = client.expect(kind::RESULT, "a list of tasks").await;
            if !envelope.has("task_id") {
                assert_eq!(envelope.uint("id"), id, "{envelope:?}");
                break envelope.content();
            }
            results += 1;
            let (_, task_id) = world.ended(&envelope);
            receipt(client, &task_id).await;
        };
        rows.extend(page["tasks"].as_array().expect("tasks").iter().cloned());
        if page["more"].as_bool() != Some(true) {
            return (rows, results);
        }
    }
}

/// Every caller comes back, confirms what it is sent, and lists what it has until nothing more is sent.
async fn confirm_all(world: &World) {
    for (name, format) in CALLERS {
        let mut client = world.connect(name, format, &map! {}).await;
        while list(world, &mut client).await.1 > 0 {}
    }
    // Written in order: when this is accepted, the hub has all that was confirmed before.
    let mut marker = world.connect("marker", Format::MsgPack, &map! {}).await;
    let id = marker.call("nobody", map! {"mode" => "task"}, Value::Nil).await;
    marker.accepted(id).await;
}

/// After one more kill nothing is sent again, and each number is one task that has ended.
async fn only_ends_are_left(world: &World) {
    world.hub.borrow_mut().kill_and_start_again();
    for (index, (name, format)) in CALLERS.into_iter().enumerate() {
        let mut client = world.connect(name, format, &map! {}).await;
        let (rows, results) = list(world, &mut client).await;
        assert_eq!(results, 0, "{name} was sent what it had confirmed");
        let mut found = BTreeMap::new();
        for row in &rows {
            let number: u64 = row["request_id"].as_str().expect("a request_id").parse().expect("a number");
            let open = !matches!(row["state"].as_str(), Some("SUCCEEDED" | "FAILED"));
            assert!(!open, "{row} has not ended");
            let first = found.insert(number, row["task_id"].as_str().expect("a name").to_owned());
            assert_eq!(first, None, "number {number} became two tasks");
        }
        let first = index as u64 * NUMBERS;
        let told = (first..first + NUMBERS)
            .map(|number| (number, world.with_task(number, |task| task.task_id.clone()).expect("a name")));
        assert!(told.eq(found), "{name} has other tasks than it was told of");
    }
}

async fn killed_again_and_again(seed: u64) {
    let world = World::new(seed);
    let local = LocalSet::new();
    local
        .run_until(async {
            let mut callers = JoinSet::new();
            let mut workers = JoinSet::new();
            for index in 0..WORKERS.len() {
                workers.spawn_local(work(Rc::clone(&world), index));
            }
            for index in 0..CALLERS.len() {
                callers.spawn_local(Caller::new(&world, index).run());
            }
            while world.done.get() < CALLERS.len() {
                // Workers end only by failing.
                let ended = tokio::select! {
                    Some(ended) = callers.join_next() => ended,
                    Some(ended) = workers.join_next() => ended,
                };
                ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
            }
        })
        .await;
    assert_eq!(world.kills.get(), KILLS, "the load was over before the last kill");
    confirm_all(&world).await;
    only_ends_are_left(&world).await;
    let tasks = world.tasks.borrow();
    let names: BTreeSet<_> = tasks.values().filter_map(|task| task.task_id.as_deref()).collect();
    assert_eq!(
        (tasks.len(), names.len()),
        (CALLERS.len() * usize::try_from(NUMBERS).unwrap(), tasks.len()),
        "names are unique"
    );
    for (number, task) in &*tasks {
        assert!(idempotent(*number) || task.ran.len() <= 1, "number {number} ran twice: {task:?}");
    }
    let again = tasks.values().filter(|task| task.attempts.len() > 1).count();
    assert!(again > 0, "no kill met a task that somebody had");
    let unknown = tasks.values().filter(|task| task.end.as_ref().is_some_and(|end| end.1 == "agent_lost"));
    assert!(unknown.count() > 0, "no worker was replaced that had what must not run twice");
}

#[tokio::test]
async fn no_task_is_lost_or_made_twice_however_often_the_hub_is_killed() {
    killed_again_and_again(1).await;
}

#[tokio::test]
async fn nothing_runs_twice_that_must_not_though_the_hub_and_some_workers_are_replaced() {
    killed_again_and_again(0x5eed).await;
}
