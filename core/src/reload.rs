//! `hub.config.reload`: the shell reads its files again, and the CALL is open until it has.

use agent_reach_protocol::{Call as Asking, ErrorCode};
use serde::Serialize;

use crate::calls::{Failure, Refusal};
use crate::hub::{Hub, Turn};
use crate::tasks::Waits;
use crate::views::pack;

/// Most reloads that the shell is asked for at one time: each is answered, so its queue needs no more room.
pub const RELOADS_MAX: usize = 8;

/// What came of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Number of the policy that counts now.
    pub policy_version: u64,
    /// Keys of the configuration whose files were other ones than before.
    pub changed: Vec<&'static str>,
}

impl Hub {
    /// Asks the shell for a reload.
    pub(crate) fn ask_reload(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
    ) -> Result<(), Refusal> {
        if self.reloads >= RELOADS_MAX {
            return Err(Failure::overloaded("a reload is under way, and others wait for it").into());
        }
        let waiter = self.let_wait(turn.now, key, asking)?;
        self.reloads += 1;
        let number = self.waits(Waits::Reload(waiter));
        self.note_act(turn, key, "hub.config.reload", "hub");
        turn.fx.reloads.push(number);
        Ok(())
    }

    /// The shell has read its files, or could not use them: then nothing has changed.
    pub(crate) fn on_reloaded(
        &mut self,
        turn: &mut Turn<'_>,
        number: u64,
        outcome: Result<Reloaded, String>,
    ) {
        self.reloads = self.reloads.saturating_sub(1);
        let Some(Waits::Reload(waiter)) = self.no_longer_waits(number) else { return };
        match outcome {
            Ok(reloaded) => self.answer_waiter(turn, &waiter, &pack(&reloaded)),
            Err(reason) => {
                let failure = Failure::new(ErrorCode::HandlerError, &reason);
                self.fail_waiter(turn, &waiter, &failure.into());
            }
        }
        self.close_if_idle(turn, waiter.connection);
    }
}
