//! Deadlines of legs: phase one, processing, budget, and the end of a stranded slot.

use agent_reach_protocol::ErrorCode;

use super::{Failure, LegState};
use crate::hub::{Hub, Turn};
use crate::time::Now;

impl Hub {
    pub(crate) fn on_leg_timer(&mut self, turn: &mut Turn<'_>, index: usize) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.timer_at = Now::default();
        let deadline = leg.deadline;
        if deadline > turn.now {
            // The deadline moved on since the timer was set.
            return self.set_leg_deadline(index, deadline);
        }
        let (state, call, timeout_ms) = (leg.state, leg.call, leg.timeout_ms);
        let Some(call) = call.and_then(|call| self.calls.get(call)) else {
            return match state {
                // The provider never answered its CANCEL.
                LegState::Stranded => self.free_leg(turn, index),
                // What is left of a notify took too long.
                LegState::Booked(_) | LegState::Given | LegState::Accepted => {
                    self.strand_leg(turn, index, "timeout", false)
                }
            };
        };
        let is_task = call.task.is_some();
        let failure = if turn.now >= call.budget_at {
            Failure::new(ErrorCode::BudgetExhausted, "the total budget of the call is spent")
        } else if state == LegState::Given {
            let message = format!("the agent did not accept within {} ms", call.accept_timeout_ms);
            Failure::new(ErrorCode::AcceptTimeout, message)
        } else if is_task {
            let message = format!("no sign of the task for twice its processing time of {timeout_ms} ms");
            Failure::new(ErrorCode::Orphaned, message)
        } else {
            Failure::new(ErrorCode::Timeout, format!("the agent did not finish within {timeout_ms} ms"))
        };
        self.fail_leg(turn, index, failure);
    }
}
