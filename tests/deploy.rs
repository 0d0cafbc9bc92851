//! The files of deploy/ and the Dockerfile agree with the program, with each other, and with what they name.
#![cfg(test)]

mod yaml;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent_reach::cli::Cli;
use agent_reach::config::Config;
use agent_reach::policy_file::PolicyFile;
use clap::CommandFactory as _;
use yaml::{document, items, read, root, text};
use yaml_rust2::Yaml;

/// What closing connections get after the drain.
const LAST_WORDS: Duration = Duration::from_secs(3);
const STATE: &str = "/var/lib/agent-reach";

/// Loads a configuration with its policy as the hub does, in a folder in which `places` are: each path of the machine that
/// it is for begins with one of them, and lies in the folder of certificates or of the store.
fn load(config: &str, policy: &str, places: &[&str]) -> Config {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    agent_reach::certs::init(&at("certs"), &[]).unwrap();
    for (from, to) in [("hub.pem", "tls.crt"), ("hub-key.pem", "tls.key"), ("ca.pem", "ca.crt")] {
        std::fs::copy(at("certs").join(from), at("certs").join(to)).unwrap();
    }
    let mut config = config.to_owned();
    for place in places {
        let here = if place.ends_with("lib/agent-reach") { at("") } else { at("certs") };
        config = config.replace(&format!("\"{place}/"), &format!("\"{}/", here.display()).replace("//", "/"));
    }
    std::fs::write(at("policy.toml"), policy).unwrap();
    std::fs::write(at("agent-reach.toml"), config).unwrap();
    let file = at("agent-reach.toml");
    let loaded = Config::load(&file, []).unwrap_or_else(|problems| panic!("{problems:?}"));
    PolicyFile::load(&at("policy.toml")).unwrap_or_else(|problems| panic!("{problems:?}"));
    let check =
        Command::new(env!("CARGO_BIN_EXE_agent-reach")).arg("check").arg("--config").arg(&file).output();
    assert!(check.unwrap().status.success(), "agent-reach check");
    loaded
}

fn systemd() -> Config {
    load(&read("deploy/systemd/agent-reach.toml"), &read("deploy/systemd/policy.toml"), &[STATE])
}

fn compose() -> Config {
    load(&read("deploy/compose/agent-reach.toml"), &read("deploy/compose/policy.toml"), &[STATE])
}

fn kubernetes() -> Config {
    let map = document("deploy/kubernetes/configmap.yaml");
    let file = |name: &str| text(&map["data"][name]).to_owned();
    load(&file("agent-reach.toml"), &file("policy.toml"), &["/etc/agent-reach-tls", STATE])
}

/// How long a hub may take to stop.
fn stop(config: &Config) -> Duration {
    Duration::from_millis(config.agents.drain_ms) + LAST_WORDS
}

/// The arguments of the program are those that it takes.
fn taken<'a>(arguments: impl IntoIterator<Item = &'a str>) {
    let words = ["agent-reach"].into_iter().chain(arguments);
    Cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"));
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.trim_end_matches('s').parse().unwrap())
}

/// The settings of a unit; of one that stands there twice the last one.
fn unit(path: &str) -> BTreeMap<String, String> {
    let text = read(path);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
}

#[test]
fn every_configuration_loads_and_writes_only_where_it_may() {
    for (config, place) in [(systemd(), "systemd"), (compose(), "compose"), (kubernetes(), "kubernetes")] {
        assert_eq!(config.agents.listen.port(), 7443, "{place}");
        assert_eq!(config.metrics.unwrap().listen.port(), 9464, "{place}");
        assert_eq!(config.http.unwrap().listen.port(), 7080, "{place}");
    }
    let map = read("deploy/kubernetes/configmap.yaml");
    for text in [read("deploy/systemd/agent-reach.toml"), read("deploy/compose/agent-reach.toml"), map] {
        for section in ["[store]", "[audit]"] {
            let path = text.split(section).nth(1).unwrap().split("path = \"").nth(1).unwrap();
            assert!(path.starts_with(&format!("{STATE}/")), "{section} {path}");
        }
    }
}

#[test]
fn the_unit_starts_the_program_and_gives_it_what_it_needs() {
    let (unit, config) = (unit("deploy/systemd/agent-reach.service"), systemd());
    let mut words = unit["ExecStart"].split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/agent-reach"));
    taken(words);
    assert!(unit["ExecStart"].ends_with("/etc/agent-reach/agent-reach.toml"));
    assert_eq!(unit["Type"], "notify");
    assert!(seconds(&unit["TimeoutStopSec"]) > stop(&config), "longer than the drain");
    let descriptors: u32 = unit["LimitNOFILE"].parse().unwrap();
    assert!(descriptors > config.agents.max_connections + 1024, "{descriptors}");
    assert_eq!(format!("/var/lib/{}", unit["StateDirectory"]), STATE);
    let user = read("deploy/systemd/agent-reach.sysusers.conf");
    assert!(user.contains(&format!("\nu {} ", unit["User"])), "{user}");
}

#[test]
fn the_socket_is_the_one_of_the_configuration() {
    let socket = unit("deploy/systemd/agent-reach.socket");
    assert_eq!(socket["ListenStream"], systemd().agents.listen.port().to_string());
    assert_eq!(socket["FileDescriptorName"], "agents");
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]);
    for name in ["agent-reach.service", "agent-reach.socket"] {
        let program = env!("CARGO_BIN_EXE_agent-reach");
        let text = read(&format!("deploy/systemd/{name}")).replace("/usr/local/bin/agent-reach", program);
        std::fs::write(dir.path().join(name), text).unwrap();
        command.arg(dir.path().join(name));
    }
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            // Other units of the machine have faults of their own.
            let ours: Vec<&str> = said.lines().filter(|line| line.contains("agent-reach.s")).collect();
            assert_eq!(ours, Vec::<&str>::new());
        }
        Err(error) => eprintln!("the units were not verified: systemd-analyze: {error}"),
    }
}

/// Host and container side of a mount.
fn mount(volume: &Yaml) -> (&str, &str) {
    let mut parts = text(volume).split(':');
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn the_compose_file_mounts_files_that_are_there_where_they_are_looked_for() {
    let file = document("deploy/compose/docker-compose.yml");
    let mut mounted = BTreeMap::new();
    for (name, service) in file["services"].as_hash().unwrap() {
        for volume in items(&service["volumes"]) {
            let (from, to) = mount(volume);
            if from.starts_with('.') {
                let path = root().join("deploy/compose").join(from);
                assert!(path.exists(), "{name:?}: {from}");
                mounted.insert(to.to_owned(), path);
            } else {
                assert!(
                    file["volumes"].as_hash().unwrap().contains_key(&Yaml::String(from.into())),
                    "{from}"
                );
            }
        }
    }
    assert!(mounted.contains_key("/etc/agent-reach/agent-reach.toml"));
    let prometheus = document("dashboards/prometheus/prometheus.yml");
    assert!(mounted.contains_key("/etc/prometheus/prometheus.yml"));
    for rules in items(&prometheus["rule_files"]) {
        assert!(mounted.contains_key(text(rules)), "{rules:?}");
    }
    let boards = document("dashboards/grafana/provisioning/dashboards/agent-reach.yml");
    assert!(mounted.contains_key(text(&boards["providers"][0]["options"]["path"])));
    let grafana = &file["services"]["grafana"]["environment"];
    let home = Path::new(text(&grafana["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]));
    let folder = &mounted[home.parent().unwrap().to_str().unwrap()];
    assert!(folder.join(home.file_name().unwrap()).is_file(), "{home:?}");
}

#[test]
fn the_compose_files_ports_and_times_are_those_of_the_hub() {
    let (file, config) = (document("deploy/compose/docker-compose.yml"), compose());
    let hub = &file["services"]["hub"];
    assert_eq!(text(&hub["ports"][0]), "7443:7443");
    assert!(seconds(text(&hub["stop_grace_period"])) > stop(&config));
    let descriptors = hub["ulimits"]["nofile"].as_i64().unwrap();
    assert!(descriptors > i64::from(config.agents.max_connections) + 1024, "{descriptors}");
    let prometheus = document("dashboards/prometheus/prometheus.yml");
    let job = &prometheus["scrape_configs"][0];
    assert_eq!(text(&job["job_name"]), "agent-reach", "the alerts look for it");
    let target = format!("hub:{}", config.metrics.unwrap().listen.port());
    assert_eq!(text(&job["static_configs"][0]["targets"][0]), target);
    // The one line of shell: what it runs is a command of the program.
    let certs = text(&items(&file["services"]["certs"]["entrypoint"])[2]).to_owned();
    taken(certs.split("agent-reach certs").nth(1).map(|rest| format!("certs{rest}")).unwrap().split(' '));
}

/// The one of several documents that is of this kind and name.
fn named(path: &str, name: &str) -> Yaml {
    let of = |document: &Yaml| text(&document["metadata"]["name"]) == name;
    yaml::documents(path).into_iter().find(of).unwrap_or_else(|| panic!("{path}: {name}"))
}

#[test]
fn the_pod_is_probed_and_stopped_as_the_hub_needs_it() {
    let (file, config) = (document("deploy/kubernetes/deployment.yaml"), kubernetes());
    assert_eq!(file["spec"]["replicas"].as_i64(), Some(1));
    assert_eq!(text(&file["spec"]["strategy"]["type"]), "Recreate");
    let pod = &file["spec"]["template"]["spec"];
    let grace = u64::try_from(pod["terminationGracePeriodSeconds"].as_i64().unwrap()).unwrap();
    assert!(Duration::from_secs(grace) > stop(&config));
    let container = &pod["containers"][0];
    taken(items(&container["args"]).iter().map(text));
    let http = config.http.unwrap();
    let ports: BTreeMap<&str, i64> = items(&container["ports"])
        .iter()
        .map(|port| (text(&port["name"]), port["containerPort"].as_i64().unwrap()))
        .collect();
    let listens = |port: u16| i64::from(port);
    assert_eq!(ports["agents"], listens(config.agents.listen.port()));
    assert_eq!(ports["metrics"], listens(config.metrics.unwrap().listen.port()));
    assert_eq!(ports["http"], listens(http.listen.port()));
    let probes = [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")];
    for (probe, path) in probes {
        let asked = &container[probe]["httpGet"];
        assert_eq!(text(&asked["path"]), path, "{probe}");
        assert_eq!(text(&asked["port"]), "http", "{probe}");
        assert_eq!(text(&asked["scheme"]) == "HTTPS", http.cert.is_some(), "{probe}");
        assert_eq!(text(&asked["httpHeaders"][0]["name"]), "Host", "{probe}");
        assert_eq!(text(&asked["httpHeaders"][0]["value"]), "localhost", "{probe}: others get 421");
    }
    assert!(!http.listen.ip().is_loopback(), "the kubelet asks from outside of the pod");
}

#[test]
fn what_the_manifests_name_is_in_the_manifests() {
    let kustomization = document("deploy/kubernetes/kustomization.yaml");
    let mut listed: Vec<_> =
        items(&kustomization["resources"]).iter().map(|name| text(name).to_owned()).collect();
    listed.push("kustomization.yaml".into());
    listed.sort();
    let there = yaml::files("deploy/kubernetes", ".yaml");
    let there: Vec<_> = there.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(listed, there);

    let file = document("deploy/kubernetes/deployment.yaml");
    let template = &file["spec"]["template"];
    let pod = &template["spec"];
    let volumes: Vec<&str> = items(&pod["volumes"]).iter().map(|volume| text(&volume["name"])).collect();
    let mounts = items(&pod["containers"][0]["volumeMounts"]);
    assert_eq!(mounts.iter().map(|mount| text(&mount["name"])).collect::<Vec<_>>(), volumes);
    let paths: Vec<&str> = mounts.iter().map(|mount| text(&mount["mountPath"])).collect();
    assert_eq!(paths, ["/etc/agent-reach", "/etc/agent-reach-tls", STATE]);
    let claim = text(&pod["volumes"][2]["persistentVolumeClaim"]["claimName"]);
    assert_eq!(text(&document("deploy/kubernetes/pvc.yaml")["metadata"]["name"]), claim);
    let map = text(&pod["volumes"][0]["configMap"]["name"]);
    assert_eq!(text(&document("deploy/kubernetes/configmap.yaml")["metadata"]["name"]), map);

    let labels = template["metadata"]["labels"].as_hash().unwrap();
    let selects = |selector: &Yaml| {
        let wanted = selector.as_hash().unwrap();
        assert!(wanted.iter().all(|(key, value)| labels.get(key) == Some(value)), "{wanted:?}");
    };
    selects(&file["spec"]["selector"]["matchLabels"]);
    selects(&document("deploy/kubernetes/pdb.yaml")["spec"]["selector"]["matchLabels"]);
    for (service, port) in [("agent-reach", "agents"), ("agent-reach-metrics", "metrics")] {
        let service = named("deploy/kubernetes/service.yaml", service);
        selects(&service["spec"]["selector"]);
        assert_eq!(text(&service["spec"]["ports"][0]["targetPort"]), port);
    }
}

#[test]
fn the_image_is_built_of_what_is_let_through_to_it() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let ignore = read(".dockerignore");
    let through: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for path in &through {
        assert!(root().join(path).exists(), ".dockerignore lets {path} through, which is not there");
    }
    for needed in members.iter().filter_map(toml::Value::as_str).chain(["src", "Cargo.toml", "Cargo.lock"]) {
        assert!(through.contains(&needed), ".dockerignore keeps {needed} from the build");
    }
    // What the build's sources include from elsewhere would be missing there.
    for file in yaml::files("src", ".rs") {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("include_str!(\"../"), "{file:?} includes a file from outside of src");
    }
}

#[test]
fn the_image_runs_the_program_with_the_configuration_that_is_mounted() {
    let file = read("Dockerfile");
    let line =
        |word: &str| file.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{word}"));
    let arguments: Vec<String> = serde_json::from_str(line("CMD [").trim_start_matches("CMD ")).unwrap();
    taken(arguments.iter().map(String::as_str));
    assert_eq!(arguments.last().unwrap(), "/etc/agent-reach/agent-reach.toml");
    assert!(file.contains("install -D target/release/agent-reach /out/agent-reach"));
    assert!(line("COPY --from=build").ends_with(" /out/agent-reach /usr/local/bin/agent-reach"));
    let pod = &document("deploy/kubernetes/deployment.yaml")["spec"]["template"]["spec"]["securityContext"];
    let user = pod["runAsUser"].as_i64().unwrap();
    assert_eq!(line("USER "), format!("USER {user}:{user}"));
    let ports = compose();
    let ports =
        [ports.agents.listen.port(), ports.http.unwrap().listen.port(), ports.metrics.unwrap().listen.port()];
    assert_eq!(line("EXPOSE "), format!("EXPOSE {} {} {}", ports[0], ports[1], ports[2]));
    assert!(file.contains(&format!("/dev/tcp/127.0.0.1/{}", ports[1])), "the health check");
    assert!(line("WORKDIR /var").ends_with(STATE));
}
