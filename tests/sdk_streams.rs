//! Streams of the Rust SDK, against the real hub: credit, order, ends.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::collections::BTreeMap;

use agent_reach_sdk::{Agent, Code, Context, EmitError, FanOutItem, Summary};
use raw::Hub;
use sdk_world::proxy::Proxy;
use sdk_world::{Count, agent, until, within};

/// An agent whose `count` streams so many numbers and ends with their sum, and whose `emitted` says how many left.
async fn counter(hub: &Hub, name: &str) -> Agent {
    let emitted = Count::default();
    let seen = emitted.clone();
    agent(hub.dir(), hub.agents, name)
        .capability("count", move |context: Context, n: u64| {
            let emitted = emitted.clone();
            async move {
                for number in 0..n {
                    context.emit(number).await?;
                    emitted.up();
                }
                Ok(n * n.saturating_sub(1) / 2)
            }
        })
        .capability("emitted", move |_: Context, (): ()| {
            let seen = seen.get();
            async move { Ok(seen) }
        })
        .connect()
        .await
        .expect("a session")
}

#[tokio::test]
async fn a_consumer_that_does_not_read_stops_the_provider_and_then_gets_everything() {
    let hub = Hub::dev();
    let _provider = counter(&hub, "provider").await;
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut stream = caller.call::<u64>("count", 10_000_u64).stream::<u64>().await.expect("made");
    let emitted = || async { caller.call::<u64>("emitted", ()).await.expect("a result") };
    until("a full window", || async { emitted().await == 16 }).await;
    for _ in 0..50 {
        assert_eq!(emitted().await, 16, "nobody has read");
    }
    for number in 0..10_000 {
        let chunk = within("a chunk", stream.next()).await.expect("not the end").expect("a chunk");
        assert_eq!((chunk.seq, chunk.body), (number, number));
        if number % 1000 == 0 {
            let ahead = emitted().await - number;
            assert!(ahead <= 17, "{ahead} ahead of the reader at {number}");
        }
    }
    assert_eq!(within("the end", stream.next()).await, None);
    assert_eq!(stream.end().await.expect("the end").body, 49_995_000);
}

#[tokio::test]
async fn each_target_of_a_fan_out_streams_to_its_own_end() {
    let hub = Hub::dev();
    let _first = counter(&hub, "first").await;
    let _second = counter(&hub, "second").await;
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut all = caller.call::<u64>("count", 100_u64).window(4).all().chunks::<u64>().await.expect("made");
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut ends = Vec::new();
    while let Some(item) = within("an item", all.next()).await {
        match item.expect("no chunk is of another type") {
            FanOutItem::Chunk(chunk) => {
                let next = next.entry(chunk.target.expect("whose it is")).or_default();
                assert_eq!((chunk.seq, chunk.body), (*next, *next));
                *next += 1;
            }
            FanOutItem::Part(part) => {
                assert_eq!(next[&part.target], 100);
                ends.push((part.target, part.result.expect("a result").body));
            }
        }
    }
    ends.sort();
    assert_eq!(ends, [("first".to_owned(), 4950), ("second".to_owned(), 4950)]);
    assert_eq!(all.summary().await.expect("an end"), Summary { targets: 2, completed: 2, failed: 0 });
}

#[tokio::test]
async fn a_stream_whose_caller_is_dropped_stops_its_handler() {
    let hub = Hub::dev();
    let (told, mut hears) = tokio::sync::mpsc::channel(1);
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .capability("endless", move |context: Context, (): ()| {
            let told = told.clone();
            async move {
                loop {
                    if let Err(error) = context.emit("more").await {
                        told.send(error.clone()).await?;
                        return Err::<(), _>(error.into());
                    }
                }
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut stream = caller.call::<()>("endless", ()).stream::<String>().await.expect("made");
    for _ in 0..100 {
        within("a chunk", stream.next()).await.expect("no end").expect("a chunk");
    }
    drop(stream);
    assert_eq!(within("the cancelling", hears.recv()).await, Some(EmitError::Cancelled));
}

#[tokio::test]
async fn a_stream_goes_on_over_cut_links_of_its_provider_without_a_gap_or_a_repetition() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    let link = Proxy::to(hub.agents).await;
    let runs = Count::default();
    let counted = runs.clone();
    let _provider = agent(hub.dir(), link.address, "provider")
        .capability("count", move |context: Context, n: u64| {
            counted.up();
            async move {
                for number in 0..n {
                    context.emit(number).await?;
                }
                Ok(n)
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut stream = caller.call::<u64>("count", 1000_u64).stream::<u64>().await.expect("made");
    for number in 0..1000 {
        if number % 200 == 100 {
            link.cut();
        }
        let chunk = within("a chunk", stream.next()).await.expect("not the end").expect("a chunk");
        assert_eq!((chunk.seq, chunk.body), (number, number));
    }
    assert_eq!(within("the end", stream.end()).await.expect("the end").body, 1000);
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn a_stream_over_a_cut_link_of_its_caller_is_whole_or_says_that_it_was_interrupted() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    let link = Proxy::to(hub.agents).await;
    let _provider = counter(&hub, "provider").await;
    let caller = agent(hub.dir(), link.address, "caller").connect().await.expect("a session");
    for cut_at in [0, 10, 50] {
        let mut stream = caller.call::<u64>("count", 100_u64).stream::<u64>().await.expect("made");
        let mut next = 0;
        let broken = loop {
            if next == cut_at {
                link.cut();
            }
            match within("an item", stream.next()).await {
                Some(Ok(chunk)) => {
                    assert_eq!((chunk.seq, chunk.body), (next, next));
                    next += 1;
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match broken {
            Some(error) => assert_eq!(error.code, Code::Interrupted),
            None => assert_eq!((next, stream.end().await.expect("the end").body), (100, 4950)),
        }
    }
}
