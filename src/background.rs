//! Background appends: rows that arrive outside a turn, each at most once.

use crate::turn::validate_background;
use crate::turn_lock::lock_session_turn;
use crate::{
    BackgroundAppend, BackgroundAppendOutcome, Result, SessionRef, TranscriptLocator,
    TranscriptMessage,
};

/// Appends one assistant row to the head of a session, between turns: it waits for the session's turn lock, so that
/// it never makes the baseline of a turn in flight stale, and then does what
/// [`TranscriptLocator::append_background`] does.
///
/// The row is checked before the lock is waited for. On an anonymous locator, which has no turn lock, it appends at
/// once. It must not be awaited by the holder of the session's turn lock, which is not reentrant.
///
/// The future is `Send` and depends on no runtime. Once it has the lock it blocks its thread for the commit of one
/// row; nothing is written before that, and dropping the future until then appends nothing.
pub async fn append_background_message_in(
    locator: &dyn TranscriptLocator,
    session: &SessionRef,
    message: TranscriptMessage,
    append: BackgroundAppend,
) -> Result<BackgroundAppendOutcome> {
    validate_background(&session.session_id(), &message, &append)?;
    let _turn = lock_session_turn(locator, session).await;
    locator.append_background(session, message, &append)
}
