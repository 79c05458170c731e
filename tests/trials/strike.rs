//! What is done to a run, step by step; and what is done wrong on purpose.

use nix::sys::signal::Signal;

use crate::course::{Course, FOREIGN, FOREIGN_TTL, broken};
use crate::fault::Act;
use crate::moment::Moment;
use crate::scene::{Plant, Scene, Trouble};
use crate::support::jobs::KEY;

impl Course {
    /// Does wrong what the product must not.
    pub(crate) fn plant(&mut self, scene: &mut Scene<'_>) -> Result<(), Trouble> {
        let held_by_foreigner = self.taken_by.or(self.broken_by).is_some();
        let due = match scene.house.plant {
            Plant::StraySignal => self.struck_at.is_some(),
            Plant::TouchedKey => held_by_foreigner && self.redis_is_up,
            Plant::Nothing | Plant::NoGuard => false,
        };
        if !due || std::mem::replace(&mut self.planted, true) {
            return Ok(());
        }
        match scene.house.plant {
            Plant::StraySignal => scene.innocents.disturb(),
            Plant::TouchedKey => {
                let touch = ["PEXPIRE", KEY, FOREIGN_TTL];
                scene.server.redis.try_query::<i64>(&touch).map_err(|error| broken(&error))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries out one step.
    pub(crate) fn act(&mut self, scene: &mut Scene<'_>, act: Act) -> Result<(), Trouble> {
        if self.next <= 3 || self.next == scene.plan.steps.len() {
            scene.tell(format!("{act:?}"));
        }
        match act {
            Act::Signal(who, signal) => scene.signal(who, signal),
            Act::Network(mode) => scene.proxy.as_ref().expect("planned with a proxy").set(mode),
            Act::RedisStop => {
                scene.server.pause();
                self.redis_is_up = false;
            }
            Act::RedisCont => {
                scene.server.resume();
                self.redis_is_up = true;
            }
            Act::RedisKill => {
                scene.server.kill();
                self.redis_is_up = false;
            }
            Act::Steal | Act::Delete => {
                let set = ["SET", KEY, FOREIGN, "PX", FOREIGN_TTL];
                let words = if matches!(act, Act::Steal) { &set[..] } else { &["DEL", KEY] };
                scene.server.redis.try_query::<redis::Value>(words).map_err(|error| broken(&error))?;
                self.broken_by = Some(Moment::now());
            }
        }
        if matches!(act, Act::Signal(_, Signal::SIGCONT)) {
            self.resumed_by = Some(Moment::now());
        }
        Ok(())
    }
}
