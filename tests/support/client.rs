//! Looking into Redis from outside: one fresh connection per question, so that idle cuts,
//! restarts and killed clients never concern the test itself.

use std::fmt::{Debug, Write as _};
use std::time::Duration;

use redis::{Connection, FromRedisValue, RedisResult, ToRedisArgs};

/// A stopped server must fail a question, not hang the test.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Where a server listens and how the test itself signs in.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    url: String,
    password: Option<String>,
}

impl Client {
    /// A client of the server at `url` (no credentials in it).
    pub(crate) fn new(url: String, password: Option<String>) -> Self {
        Self { url, password }
    }

    /// A connection of the test's own, signed in.
    pub(crate) fn connect(&self) -> RedisResult<Connection> {
        let client = redis::Client::open(self.url.as_str())?;
        let mut connection = client.get_connection_with_timeout(ANSWER_WITHIN)?;
        connection.set_read_timeout(Some(ANSWER_WITHIN))?;
        if let Some(password) = &self.password {
            redis::cmd("AUTH").arg(password).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// Sends one command and returns the reply, errors included.
    pub(crate) fn try_query<T: FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> RedisResult<T> {
        let query = || redis::Cmd::new().arg(words).query(&mut self.connect()?);
        // A socket with a timeout may be interrupted (EINTR) without a fault of anybody: a child's end is
        // told to the thread that started it, or, while that has all signals blocked to start another, to
        // any other thread of the process.
        match query() {
            Err(error) if error.to_string().contains("Interrupted system call") => query(),
            done => done,
        }
    }

    /// Sends one command that must succeed.
    #[track_caller]
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[impl ToRedisArgs + Debug]) -> T {
        self.try_query(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command that must succeed and whose reply does not matter.
    #[track_caller]
    pub(crate) fn tell(&self, words: &[&str]) {
        self.query::<redis::Value>(words);
    }

    /// The string at `key`.
    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.query(&["GET", key])
    }

    /// Whether `key` exists.
    #[track_caller]
    pub(crate) fn exists(&self, key: &str) -> bool {
        self.query(&["EXISTS", key])
    }

    /// `PTTL key` in milliseconds: −1 without expiry, −2 without the key.
    #[track_caller]
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    /// How often clients have sent the command `name` (scripts count as `eval`, and what they
    /// call inside counts too: ask for commands that no script uses).
    #[track_caller]
    pub(crate) fn calls(&self, name: &str) -> u64 {
        let info: String = self.query(&["INFO", "commandstats"]);
        let head = format!("cmdstat_{name}:calls=");
        info.lines()
            .find_map(|line| line.strip_prefix(&head))
            .and_then(|rest| rest.split(',').next())
            .map_or(0, |count| count.parse().expect("a count"))
    }

    /// Every key with its type, expiry and value, for the message of a failing test.
    pub(crate) fn keys(&self) -> String {
        self.try_keys().unwrap_or_else(|error| format!("  (not to be read: {error})\n"))
    }

    fn try_keys(&self) -> RedisResult<String> {
        let mut shown = String::new();
        for key in self.try_query::<Vec<Vec<u8>>>(&["KEYS", "*"])? {
            let key = String::from_utf8_lossy(&key).into_owned();
            let kind: String = self.try_query(&["TYPE", &key])?;
            let left: i64 = self.try_query(&["PTTL", &key])?;
            let value: redis::Value = match kind.as_str() {
                "string" => self.try_query(&["GET", &key])?,
                "list" => self.try_query(&["LRANGE", &key, "0", "-1"])?,
                "zset" => self.try_query(&["ZRANGE", &key, "0", "-1", "WITHSCORES"])?,
                _ => redis::Value::Nil,
            };
            let _ = writeln!(shown, "  {key:?} {kind} pttl {left}: {value:?}");
        }
        Ok(shown)
    }
}
