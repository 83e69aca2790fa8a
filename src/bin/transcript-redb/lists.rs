//! `sessions` and `threads`.

use serde_json::{Value, json};
use transcript_redb::{
    Attributes, SessionQuery, SessionSummary, Store, ThreadSummary, TranscriptSpend,
};

use crate::args::{Database, Json, Sessions};
use crate::failure::{Failure, Outcome};
use crate::output::{DIM, Output};
use crate::select;
use crate::table::Table;
use crate::text::{count, decimals, many, spend_cost};

/// `sessions`
pub fn sessions(
    database: &Database,
    args: &Sessions,
    output: &mut Output,
) -> Result<Outcome, Failure> {
    let store = database.read()?;
    let sessions = store.sessions_matching(&SessionQuery {
        thread: args.thread.clone(),
        children: args.children,
        limit: args.limit,
        ..SessionQuery::default()
    })?;
    if args.output.json {
        for session in &sessions {
            output.json(&session_json(&store, session)?)?;
        }
        return Ok(Outcome::Done);
    }
    if sessions.is_empty() {
        output.line("No sessions.")?;
        return Ok(Outcome::Done);
    }
    let all = select::all(&store)?;
    let handles = select::handles(&sessions, &all, output.columns().is_none());
    let mut table = Table::new(
        &[
            "SESSION", "UPDATED", "AGENT", "MESSAGES", "INPUT", "OUTPUT", "COST", "TITLE",
        ],
        &[3, 4, 5],
        &[7, 6],
    )
    .spare(&[2, 5]);
    let money = decimals(sessions.iter().map(|session| &session.spend));
    for (session, handle) in sessions.iter().zip(handles) {
        let mut title = select::title(session);
        if session.subagent {
            title.insert_str(0, "↳ ");
        }
        table.row([
            handle,
            output.time(&session.updated, false),
            session.agent_name.clone(),
            count(session.messages),
            count(session.spend.input_tokens),
            count(session.spend.output_tokens),
            spend_cost(&session.spend, money),
            title,
        ]);
    }
    table.print(output)?;
    let hidden = if args.children {
        0
    } else {
        below(&store, &sessions)?
    };
    if hidden > 0 {
        output.line("")?;
        let hidden = many(hidden, "session");
        let more = format!("and {hidden} of sub-agents below these (--children)");
        output.styled(DIM, &more)?;
    }
    Ok(Outcome::Done)
}

/// How many sessions of sub-agents there are below these, at any depth.
pub fn below<'s>(
    store: &Store,
    sessions: impl IntoIterator<Item = &'s SessionSummary>,
) -> Result<u64, Failure> {
    let above: Vec<_> = sessions
        .into_iter()
        .filter_map(|it| it.session.clone())
        .collect();
    let all = store.with_subagents(&above)?;
    Ok((all.len() - above.len()) as u64)
}

/// A session as programs get it.
pub fn session_json(store: &Store, session: &SessionSummary) -> Result<Value, Failure> {
    let reference = session.session.as_ref();
    let told = match reference {
        Some(reference) => store.attributes(reference)?,
        None => Attributes::default(),
    };
    Ok(json!({
        "stem": session.stem,
        "session_key": reference.map(|it| &it.session_key),
        "agent_id": reference.and_then(|it| it.agent_id.as_ref()),
        "parent_stem": reference.and_then(|it| it.parent_stem()),
        "generation": session.generation,
        "subagent": session.subagent,
        "thread_id": session.thread_id,
        "agent_name": session.agent_name,
        "title": session.title,
        "created": session.created,
        "updated": session.updated,
        "messages": session.messages,
        "live_messages": session.live_messages,
        "spend": session.spend,
        "spawned_by": told.spawned_by,
        "attributes": told.more,
    }))
}

/// `threads`
pub fn threads(database: &Database, args: &Json, output: &mut Output) -> Result<Outcome, Failure> {
    let threads = database.read()?.threads()?;
    if args.json {
        for thread in &threads {
            output.json(&thread_json(thread))?;
        }
        return Ok(Outcome::Done);
    }
    if threads.is_empty() {
        output.line("No threads.")?;
        return Ok(Outcome::Done);
    }
    let mut table = Table::new(
        &[
            "THREAD",
            "UPDATED",
            "SESSIONS",
            "SUB-AGENTS",
            "MESSAGES",
            "INPUT",
            "OUTPUT",
            "COST",
            "TITLE",
        ],
        &[2, 3, 4, 5, 6],
        &[8, 0],
    )
    .spare(&[3, 6, 4]);
    let sums: Vec<_> = threads.iter().map(whole).collect();
    let money = decimals(&sums);
    for (thread, sum) in threads.iter().zip(&sums) {
        table.row([
            thread.thread_id.clone(),
            output.time(&thread.updated, false),
            count(thread.sessions),
            count(thread.subagents),
            count(thread.messages + thread.subagent_messages),
            count(sum.input_tokens),
            count(sum.output_tokens),
            spend_cost(sum, money),
            thread.title.clone().unwrap_or_default(),
        ]);
    }
    table.print(output)?;
    Ok(Outcome::Done)
}

/// What a thread and its sub-agents spent together.
fn whole(thread: &ThreadSummary) -> TranscriptSpend {
    let mut sum = thread.spend.root.clone();
    for (spend, _) in thread.spend.subagents.values() {
        sum.input_tokens = sum.input_tokens.saturating_add(spend.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(spend.output_tokens);
        sum.turns = sum.turns.saturating_add(spend.turns);
        sum.cost_split.merge(&spend.cost_split);
    }
    sum
}

fn thread_json(thread: &ThreadSummary) -> Value {
    json!({
        "thread_id": thread.thread_id,
        "title": thread.title,
        "sessions": thread.sessions,
        "messages": thread.messages,
        "subagents": thread.subagents,
        "subagent_messages": thread.subagent_messages,
        "updated": thread.updated,
        "spend": thread.spend,
    })
}
