//! What the hub itself answers, under addresses of its own: agents, capabilities and tasks.

use axum::Extension;
use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::Api;
use super::asking::Asking;
use super::call::told;
use super::status::invalid;
use super::visit::Heard;
use crate::access::Visitor;
use crate::connection::{Edge as _, Encoding};
use crate::http::Problem;
use crate::http::media::json;

/// The filters of a list: parameter, whether it is a number.
const AGENT_FILTERS: [&str; 4] = ["agent_id", "capability", "status", "after"];
const CAPABILITY_FILTERS: [&str; 2] = ["name", "after"];

pub(super) async fn agents(api: Api, Extension(visitor): Extension<Visitor>, uri: Uri) -> Response {
    list(&api, &visitor, &uri, "hub.agents.list", &AGENT_FILTERS, true).await
}

pub(super) async fn capabilities(api: Api, Extension(visitor): Extension<Visitor>, uri: Uri) -> Response {
    list(&api, &visitor, &uri, "hub.capabilities.list", &CAPABILITY_FILTERS, false).await
}

pub(super) async fn task(
    api: Api,
    Path(task_id): Path<String>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    of_task(&api, &visitor, &task_id, "hub.tasks.get").await
}

pub(super) async fn cancel_task(
    api: Api,
    Path(task_id): Path<String>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    of_task(&api, &visitor, &task_id, "hub.tasks.cancel").await
}

async fn list(
    api: &Api,
    visitor: &Visitor,
    uri: &Uri,
    capability: &str,
    filters: &[&str],
    labels: bool,
) -> Response {
    match filter(uri.query(), filters, labels) {
        Ok(filter) => {
            ask(api, visitor, capability, &filter).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(problem) => problem.into_response(),
    }
}

async fn of_task(api: &Api, visitor: &Visitor, task_id: &str, capability: &str) -> Response {
    let body = Map::from_iter([("task_id".to_owned(), Value::from(task_id))]);
    match ask(api, visitor, capability, &body).await {
        Ok(response) => response,
        // The address names it, so it is the address that is wrong. Another's is answered in the same way.
        Err(problem) if problem.details.get("field").is_some_and(|field| field == "task_id") => {
            Problem { status: StatusCode::NOT_FOUND, ..problem }.into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

/// The body of a list's call, from the parameters of its address.
fn filter(query: Option<&str>, filters: &[&str], labels: bool) -> Result<Map<String, Value>, Problem> {
    let mut body = Map::new();
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let name = &*name;
        let before = if name == "limit" {
            let limit = value.parse::<u32>().ok().filter(|limit| *limit > 0);
            let limit = limit.ok_or_else(|| invalid(name, "limit takes a number from 1".to_owned()))?;
            body.insert(name.to_owned(), limit.into())
        } else if labels && name == "label" {
            let Some((key, value)) = value.split_once('=') else {
                return Err(invalid(name, "label takes key=value".to_owned()));
            };
            let map = body.entry("labels").or_insert_with(|| Value::Object(Map::new()));
            map.as_object_mut().and_then(|map| map.insert(key.to_owned(), value.into()))
        } else if filters.contains(&name) {
            body.insert(name.to_owned(), (&*value).into())
        } else {
            return Err(invalid(name, format!("there is no parameter {name:?}")));
        };
        if before.is_some() {
            return Err(invalid(name, format!("{name} is said twice")));
        }
    }
    Ok(body)
}

/// Asks the hub, by the same rights as every caller.
async fn ask(
    api: &Api,
    visitor: &Visitor,
    capability: &str,
    body: &Map<String, Value>,
) -> Result<Response, Problem> {
    let mut visit = api.visit(visitor, false)?;
    let body = serde_json::to_string(body).unwrap_or_default();
    visit.say(Encoding::Json.text(&Asking::plain(capability).with_body(&body)));
    loop {
        match visit.hear().await? {
            Heard::Accept(_) | Heard::Chunk(..) => {}
            Heard::Result(mut head, _) if !head.is_completed() => return Err(head.problem()),
            Heard::Result(head, body) => {
                let text = body.map_or("null".to_owned(), |body| body.get().to_owned());
                return Ok(told(&head, json(StatusCode::OK, text)));
            }
        }
    }
}
