use agent_reach_protocol::{ToAgent, decode_to_agent};
use rmpv::Value;

use crate::{ConnectionId, Effects, Hub, Input, Now, Outgoing, Peer, Policy, Settings};

const CONNECTION: ConnectionId = ConnectionId { index: 0, generation: 1 };

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn say(hub: &mut Hub, kind: u64, header: Value) -> Vec<Outgoing> {
    let mut message = Vec::new();
    rmpv::encode::write_value(&mut message, &Value::Array(vec![kind.into(), header])).unwrap();
    let input = Input::Message { connection: CONNECTION, message: message.into(), fault: None };
    hub.handle(Now::from_millis(1), input, &mut Effects::default());
    let mut batch = Vec::new();
    hub.take_outbound(CONNECTION, 100, usize::MAX, &mut batch);
    batch
}

/// Both offers come with a copy of the alias of their own; the index has one of them.
#[test]
fn an_alias_that_two_new_offers_share_leads_to_either() {
    let mut hub = Hub::new(Settings::default(), Policy::open());
    let peer = Peer { identity: "a".into(), name: "a".into() };
    hub.handle(Now::default(), Input::Connected { connection: CONNECTION, peer }, &mut Effects::default());
    let offer = |name: &str, version: &str| {
        let aliases = Value::Array(vec!["both".into()]);
        map([("name", name.into()), ("version", version.into()), ("aliases", aliases)])
    };
    let capabilities = Value::Array(vec![offer("one", "1.0.0"), offer("two", "2.0.0")]);
    let (v, agent_id, instance) = (1.into(), "a".into(), "i".into());
    let hello = [("v", v), ("agent_id", agent_id), ("instance", instance), ("capabilities", capabilities)];
    say(&mut hub, 1, map(hello));
    for (id, version, name) in [(1, "^1", "one"), (2, "^2", "two")] {
        let call = map([("id", id.into()), ("capability", "both".into()), ("version", version.into())]);
        let batch = say(&mut hub, 10, call);
        let [Outgoing::Message(given)] = &*batch else { panic!("{batch:?}") };
        let Ok((ToAgent::Call(given), _)) = decode_to_agent(given) else { panic!("{given:?}") };
        assert_eq!(given.capability, name);
    }
}
