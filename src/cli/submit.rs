//! What `agent-reach call --task` does: submits a task, and follows it to its end.

use std::time::Duration;

use agent_reach_sdk::{CallBuilder, CallError, Payload, TaskEvent, TaskHandle, TaskWatch};

use super::call::{self, CallArgs};
use super::hub::{DONE, FAILED};
use super::output;
use super::table::clean;

/// How long a result may be on its way after its task has ended.
const HOMECOMING: Duration = Duration::from_secs(60);

/// `agent-reach call --task`: submits, and waits unless it is detached.
pub(super) async fn submit(mut call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    if let Some(url) = &args.callback_url {
        call = call.callback_url(url);
    }
    if let Some(inbox) = &args.reply_to {
        call = call.reply_to(inbox);
    }
    let mut task = call.submit().await?;
    if args.detach {
        let id = task.id();
        if args.json {
            output::json(&serde_json::json!({ "task_id": id }).to_string());
        } else {
            output::line(&clean(id));
        }
        return Ok(DONE);
    }
    eprintln!("task {} is stored", clean(task.id()));
    let going = Going(task.id().to_owned());
    if !follow(&task, args).await? {
        return Ok(FAILED);
    }
    let reply = tokio::time::timeout(HOMECOMING, task.reply()).await;
    going.ended();
    match reply {
        Ok(reply) => reply.map(|reply| call::completed(reply, args)),
        Err(_) => {
            eprintln!("agent-reach call: the task has ended, and its result is not here yet");
            Ok(FAILED)
        }
    }
}

/// Tells people that a task goes on, when waiting for it ends before the task does.
struct Going(String);

impl Going {
    fn ended(mut self) {
        self.0.clear();
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            eprintln!("agent-reach call: the task goes on: {}", clean(&self.0));
        }
    }
}

/// Tells each step until the end. `false`: nobody reads stdout any more.
async fn follow(task: &TaskHandle<Payload>, args: &CallArgs) -> Result<bool, CallError> {
    let mut watch: TaskWatch = task.watch().await?;
    while let Some(event) = watch.next().await {
        match event? {
            TaskEvent::State(info) => {
                let who =
                    info.target.as_deref().map_or(String::new(), |target| format!(" {}", clean(target)));
                eprintln!("{}{who}", info.state.as_str());
            }
            TaskEvent::Progress(said) if args.stream => {
                let said = output::body_json(&said);
                let text = if args.json { format!("{{\"progress\":{said}}}") } else { said };
                if !output::json_line(&text) {
                    return Ok(false);
                }
            }
            TaskEvent::Progress(said) => {
                eprintln!("progress {}", clean(&output::layout(&output::body_json(&said), false)));
            }
            _ => {}
        }
    }
    Ok(true)
}
