use super::*;

fn parse(text: &str) -> Result<PolicyFile, Vec<String>> {
    PolicyFile::parse("p.toml", text).map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[test]
fn a_policy_is_read_with_its_defaults() {
    let policy = parse(
        r#"version = 7
[[rules]]
identity = "spiffe://d/agent/billing"
agent_ids = ["billing", "billing-2"]
provide = ["invoice.*"]
call = ["order.create", "hub.agents.list", "*"]
[[rules]]
identity = "*"
[aliases]
"invoices.make" = "invoice.create"
make = "invoice.create"
"#,
    );
    let billing = Rule {
        identity: "spiffe://d/agent/billing".into(),
        agent_ids: Some(texts(&["billing", "billing-2"])),
        provide: texts(&["invoice.*"]),
        call: texts(&["order.create", "hub.agents.list", "*"]),
    };
    let others = Rule { identity: "*".into(), agent_ids: None, provide: vec![], call: vec![] };
    let aliases = [("invoices.make", "invoice.create"), ("make", "invoice.create")];
    let expected = PolicyFile {
        version: 7,
        rules: vec![billing, others],
        aliases: aliases.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        capabilities: BTreeMap::new(),
        open: true,
    };
    assert_eq!(policy, Ok(expected));
}

#[test]
fn forms_that_are_no_pattern_are_refused_with_their_line() {
    for pattern in
        ["text-*", "text.*.x", "**", "", "text.", ".text", "a..b", "Text", "a_b", "*.a", "a.**", "a b", ".*"]
    {
        for list in ["provide", "call"] {
            let text = format!(
                "version = 1\n[[rules]]\nidentity = \"*\"\n{list} = [\n  \"a\",\n  \"{pattern}\",\n]\n"
            );
            let problems = parse(&text).unwrap_err();
            let start = format!("p.toml:6: rules[1].{list}: {pattern:?} ");
            assert!(problems.len() == 1 && problems[0].starts_with(&start), "{problems:?}");
        }
    }
}

#[test]
fn identities_are_exact_or_a_star() {
    for identity in ["", "spiffe://d/agent/*", "a*", "**", "a b"] {
        let problems = parse(&format!("version = 1\n[[rules]]\nidentity = {identity:?}\n")).unwrap_err();
        assert!(problems[0].starts_with("p.toml:3: rules[1].identity: "), "{problems:?}");
    }
}

#[test]
fn agent_ids_have_no_wildcards() {
    for id in ["*", "a*", "", "a b", "a/b"] {
        let text = format!("version = 1\n[[rules]]\nidentity = \"*\"\nagent_ids = [{id:?}]\n");
        assert!(parse(&text).unwrap_err()[0].starts_with("p.toml:4: rules[1].agent_ids: "), "{id}");
    }
}

#[test]
fn every_problem_is_told_at_once_in_the_order_of_the_lines() {
    let problems = parse(
        r#"version = "1"
extra = 1
[[rules]]
provide = "a"
calls = []
[[rules]]
identity = 5
call = [1]
[aliases]
a = "b"
b = "c"
A = "d"
"hub.x" = "d"
e = "f.*"
g.h = "i"
"#,
    )
    .unwrap_err();
    let places: Vec<_> =
        problems.iter().map(|p| p.splitn(4, ':').take(3).collect::<Vec<_>>().join(":")).collect();
    assert_eq!(
        places,
        [
            "p.toml:1: version",
            "p.toml:2: extra",
            "p.toml:3: rules[1].identity",
            "p.toml:4: rules[1].provide",
            "p.toml:5: rules[1].calls",
            "p.toml:7: rules[2].identity",
            "p.toml:8: rules[2].call",
            "p.toml:10: aliases.\"a\"",
            "p.toml:12: aliases.\"A\"",
            "p.toml:13: aliases.\"hub.x\"",
            "p.toml:14: aliases.\"e\"",
            "p.toml:15: aliases.\"g\"",
        ],
        "{problems:#?}"
    );
}

#[test]
fn an_alias_of_itself_is_refused() {
    assert!(
        parse("version = 1\n[aliases]\na = \"a\"\n").unwrap_err()[0].starts_with("p.toml:3: aliases.\"a\": ")
    );
}

const DICTIONARY: &str = "[capabilities.\"a.b\"]\ndescription = \"Does it\"\n[capabilities.c]\n";

#[test]
fn with_one_name_in_it_the_dictionary_is_closed_unless_the_file_says_otherwise() {
    let of = |top: &str, rest: &str| parse(&format!("version = 1\n{top}{rest}")).unwrap().dictionary();
    let names = Some(texts(&["a.b", "c"]).into_iter().collect());
    assert_eq!(of("", DICTIONARY), names);
    assert_eq!(of("dictionary = \"closed\"\n", DICTIONARY), names);
    assert_eq!(of("dictionary = \"open\"\n", DICTIONARY), None);
    assert_eq!(of("", ""), None);
    let capabilities = parse(&format!("version = 1\n{DICTIONARY}")).unwrap().capabilities;
    let expected = [("a.b".to_owned(), Some("Does it".to_owned())), ("c".to_owned(), None)];
    assert_eq!(capabilities, BTreeMap::from(expected));
}

#[test]
fn a_dictionary_that_means_nothing_is_refused() {
    for (text, start) in [
        ("dictionary = \"closed\"\n", "p.toml:2: dictionary: is closed and has no names"),
        ("dictionary = true\n", "p.toml:2: dictionary: is neither"),
        ("dictionary = \"Open\"\n", "p.toml:2: dictionary: is neither"),
        ("capabilities = 1\n", "p.toml:2: capabilities: is made of sections"),
        ("[capabilities]\na = 1\n", "p.toml:3: capabilities.\"a\": is a section"),
        ("[capabilities.\"hub.x\"]\n", "p.toml:2: capabilities.\"hub.x\": \"hub.x\" is reserved"),
        ("[capabilities.\"a..b\"]\n", "p.toml:2: capabilities.\"a..b\": \"a..b\" has an empty word"),
        ("[capabilities.a.b]\n", "p.toml:2: capabilities.\"a\".b: unknown key"),
        ("[capabilities.a]\ndescription = 5\n", "p.toml:3: capabilities.\"a\".description: is no text"),
        ("[capabilities.a]\nabout = \"x\"\n", "p.toml:3: capabilities.\"a\".about: unknown key"),
    ] {
        let problems = parse(&format!("version = 1\n{text}")).unwrap_err();
        assert!(problems.len() == 1 && problems[0].starts_with(start), "{problems:?}");
    }
    let long = format!("version = 1\n[capabilities.a]\ndescription = \"{}\"\n", "x".repeat(1_025));
    assert!(parse(&long).unwrap_err()[0].contains("has 1025 bytes"));
}

#[test]
fn rules_and_aliases_may_not_name_what_nobody_can_offer() {
    let text = |top: &str| {
        format!(
            "version = 1\n{top}[[rules]]\nidentity = \"*\"\nprovide = [\"a.*\", \"a.b\", \"a.c\"]\n\
             call = [\"x\"]\n[aliases]\nold = \"c\"\nolder = \"d\"\nstats = \"hub.stats\"\n{DICTIONARY}"
        )
    };
    let problems = parse(&text("")).unwrap_err();
    let starts = [
        "p.toml:4: rules[1].provide: \"a.c\" is not in the dictionary",
        "p.toml:8: aliases.\"older\": \"d\" is not in the dictionary",
    ];
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
    assert!(parse(&text("dictionary = \"open\"\n")).is_ok());
}

#[test]
fn a_version_is_required_and_text_that_is_not_toml_is_told() {
    assert!(parse("").unwrap_err()[0].starts_with("p.toml:1: version: is missing"));
    assert!(parse("version = 1\n[[rules\n").unwrap_err()[0].starts_with("p.toml:2: not TOML: "));
    assert!(parse("version = -1\n").unwrap_err()[0].starts_with("p.toml:1: version: is no whole number"));
}

#[test]
fn the_first_rule_that_matches_counts() {
    let rule = |identity: &str| format!("[[rules]]\nidentity = \"{identity}\"\n");
    let text = format!("version = 1\n{}{}{}{}{}", rule("a"), rule("b"), rule("a"), rule("*"), rule("c"));
    let policy = parse(&text).unwrap();
    let place = |id| policy.rules.iter().position(|rule| std::ptr::eq(rule, policy.rule_for(id).unwrap()));
    assert_eq!(["a", "b", "c", "d"].map(place), [Some(0), Some(1), Some(3), Some(3)]);
    assert_eq!(policy.shadowed(), [(3, 1), (5, 4)]);
    assert_eq!(parse("version = 1\n").unwrap().rule_for("a"), None);
}

#[test]
fn a_list_over_the_limit_is_refused() {
    let list = |count| format!("[{}]", vec!["\"a\""; count].join(","));
    let text = |count| format!("version = 1\n[[rules]]\nidentity = \"*\"\ncall = {}\n", list(count));
    assert!(parse(&text(MAX_LIST)).is_ok());
    assert!(parse(&text(MAX_LIST + 1)).unwrap_err()[0].contains("has more than 1024 entries"));
}
