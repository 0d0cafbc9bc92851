//! The `process_*` metrics that Prometheus expects of every program.

use metrics_process::collector;

/// Appends the figures of this process in text format; one that the system does not tell is left out.
///
/// Written by hand, since the recorder's counters are whole numbers and CPU time is not.
pub(super) fn append(page: &mut String) {
    let told = collector::collect();
    let whole = |value: Option<u64>| value.map(|value| value.to_string());
    let seconds = told.cpu_seconds_total.map(|value| value.to_string());
    let lines = [
        ("process_cpu_seconds_total", "counter", "User and system CPU time.", seconds),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size.",
            whole(told.resident_memory_bytes),
        ),
        ("process_open_fds", "gauge", "Open file descriptors.", whole(told.open_fds)),
        (
            "process_max_fds",
            "gauge",
            "Most file descriptors allowed; 0 without a limit.",
            whole(told.max_fds),
        ),
        ("process_threads", "gauge", "Threads of the operating system.", whole(told.threads)),
        (
            "process_start_time_seconds",
            "gauge",
            "Start of the process, in seconds since 1970.",
            whole(told.start_time_seconds),
        ),
    ];
    for (name, kind, help, value) in lines {
        let Some(value) = value else { continue };
        page.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n"));
    }
}
