//! Where a Redis is: URLs as users write them, read by us.
//!
//! Common libraries ignore what they do not know (`?db=3`, a name without a password) and then lock
//! in the wrong database or as somebody else. Here every part is either understood or refused, and
//! no message ever contains the password.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 6379;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Host name or IP address, and port.
    Tcp(String, u16),
    /// Path of a socket.
    Unix(PathBuf),
}

/// Who we are to Redis.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// ACL user; without one, `AUTH` has the password alone.
    pub user: Option<String>,
    /// Password.
    pub password: Option<Vec<u8>>,
}

/// A Redis as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where it is.
    pub endpoint: Endpoint,
    /// The database that is selected.
    pub database: u32,
    /// What the URL says about who we are.
    pub credentials: Credentials,
}

/// Why a text is no address. Never holds the text itself, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// Empty.
    Empty,
    /// Not one of the schemes we know; holds it.
    UnknownScheme(String),
    /// `rediss://`: this version cannot do TLS.
    NoTls,
    /// A character that must be encoded stands in the user name or password.
    NotEncoded(char),
    /// The port is no number between 1 and 65535.
    Port,
    /// Nothing where the host should be.
    NoHost,
    /// The database is no number.
    Database,
    /// A `?name=` that we do not know; holds the name.
    UnknownParameter(String),
    /// `%` is not followed by two hexadecimal digits, or the bytes are no UTF-8 where text is needed.
    Encoding,
}

impl AddressError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotEncoded(_) | Self::Port | Self::Encoding => {
                "in the password write # as %23, @ as %40, / as %2F, ? as %3F and % as %25, or use --password-file"
            }
            Self::NoTls => "use redis:// through a tunnel such as stunnel",
            Self::UnknownParameter(_) => {
                "the database is the path, as in redis://host:6379/3; nothing else can be set"
            }
            _ => "as in redis://host:6379/0 or unix:///run/redis.sock",
        }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "empty"),
            Self::UnknownScheme(scheme) => {
                write!(f, "unknown scheme '{}'", crate::escape::escape(scheme.as_bytes()))
            }
            Self::NoTls => write!(f, "TLS (rediss://) is not supported by this version"),
            Self::NotEncoded(c) => write!(f, "a raw '{c}' in the user name or password"),
            Self::Port => write!(f, "the port is no number from 1 to 65535"),
            Self::NoHost => write!(f, "no host"),
            Self::Database => write!(f, "the database is no number"),
            Self::UnknownParameter(name) => {
                write!(f, "unknown parameter '{}'", crate::escape::escape(name.as_bytes()))
            }
            Self::Encoding => write!(f, "a '%' that is not followed by two hexadecimal digits"),
        }
    }
}

/// Hides the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("Credentials").field("user", &self.user).field("password", &password).finish()
    }
}

/// The address for messages: without credentials.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "{}:{port}", crate::escape::escape(host.as_bytes())),
            Endpoint::Unix(path) => f.write_str(&crate::escape::escape(path.as_os_str().as_encoded_bytes())),
        }
    }
}

impl Address {
    /// Reads `redis://[user[:password]@]host[:port][/db]`, `valkey://…`, `unix://path[?db=N]`,
    /// `redis+unix://path[?db=N]`, or a bare path of a socket.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        match text.split_once("://") {
            None if text.starts_with(['/', '.']) => Ok(Self::unix(text.into())),
            None => Err(AddressError::UnknownScheme(scheme_of(text))),
            Some(("redis" | "valkey", rest)) => parse_tcp(rest),
            Some(("unix" | "redis+unix" | "valkey+unix", rest)) => parse_unix(rest),
            Some(("rediss" | "valkeys", _)) => Err(AddressError::NoTls),
            Some((scheme, _)) => Err(AddressError::UnknownScheme(scheme_of(scheme))),
        }
    }

    fn unix(path: PathBuf) -> Self {
        Self { endpoint: Endpoint::Unix(path), database: 0, credentials: Credentials::default() }
    }
}

/// What stands where the scheme should be, if it can be shown: a text without `://` may be anything.
fn scheme_of(text: &str) -> String {
    let scheme: String =
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)).collect();
    if text.contains('@') && !text.starts_with(&format!("{scheme}:")) { String::new() } else { scheme }
}

fn parse_tcp(rest: &str) -> Result<Address, AddressError> {
    if rest.contains('#') {
        return Err(AddressError::NotEncoded('#'));
    }
    let (main, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = main.split_once('/').unwrap_or((main, ""));
    // Somebody's password has a raw / or ?, and the real host stands behind it.
    if let Some(c) =
        main[authority.len()..].contains('@').then_some('/').or(query.contains('@').then_some('?'))
    {
        return Err(AddressError::NotEncoded(c));
    }
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    if login.contains('@') {
        return Err(AddressError::NotEncoded('@'));
    }
    let (host, port) = host_and_port(place)?;
    let mut database = if path.is_empty() { 0 } else { number(path)? };
    for (name, value) in parameters(query) {
        match name {
            "db" => database = number(value)?,
            other => return Err(AddressError::UnknownParameter(other.to_owned())),
        }
    }
    Ok(Address { endpoint: Endpoint::Tcp(host, port), database, credentials: login_of(login)? })
}

fn parse_unix(rest: &str) -> Result<Address, AddressError> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(AddressError::NoHost);
    }
    let mut address = Address::unix(decode(path)?.into());
    for (name, value) in parameters(query) {
        match name {
            "db" => address.database = number(value)?,
            "user" => address.credentials.user = Some(decode(value)?),
            "pass" | "password" => address.credentials.password = Some(decode(value)?.into_bytes()),
            other => return Err(AddressError::UnknownParameter(other.to_owned())),
        }
    }
    Ok(address)
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
}

fn host_and_port(place: &str) -> Result<(String, u16), AddressError> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or(AddressError::NoHost)?;
        (host, port.strip_prefix(':').unwrap_or(port))
    } else {
        place.rsplit_once(':').unwrap_or((place, ""))
    };
    if host.is_empty() {
        return Err(if port.is_empty() { AddressError::NoHost } else { AddressError::Port });
    }
    let port = if port.is_empty() { Ok(DEFAULT_PORT) } else { port.parse() };
    match port {
        Ok(port) if port > 0 => Ok((host.to_owned(), port)),
        _ => Err(AddressError::Port),
    }
}

fn login_of(login: &str) -> Result<Credentials, AddressError> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let user = if user.is_empty() { None } else { Some(decode(user)?) };
    let password = match password {
        None | Some("") => None,
        Some(password) => Some(decode_bytes(password)?),
    };
    Ok(Credentials { user, password })
}

fn number(text: &str) -> Result<u32, AddressError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(AddressError::Database)
}

fn decode(text: &str) -> Result<String, AddressError> {
    String::from_utf8(decode_bytes(text)?).map_err(|_| AddressError::Encoding)
}

fn decode_bytes(text: &str) -> Result<Vec<u8>, AddressError> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let two = [bytes.next(), bytes.next()];
            if !two.iter().all(|digit| digit.is_some_and(|d| d.is_ascii_hexdigit())) {
                return Err(AddressError::Encoding);
            }
        }
    }
    Ok(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::{Address, AddressError, Credentials, Endpoint};

    fn tcp(host: &str, port: u16, database: u32, user: Option<&str>, password: Option<&str>) -> Address {
        Address {
            endpoint: Endpoint::Tcp(host.into(), port),
            database,
            credentials: Credentials { user: user.map(Into::into), password: password.map(Into::into) },
        }
    }

    #[test]
    fn urls_are_read_in_every_form() {
        for (url, expected) in [
            ("redis://h", tcp("h", 6379, 0, None, None)),
            ("valkey://h:1/3", tcp("h", 1, 3, None, None)),
            ("redis://h/?db=3", tcp("h", 6379, 3, None, None)),
            ("redis://u:p%40s%23@h:7/", tcp("h", 7, 0, Some("u"), Some("p@s#"))),
            ("redis://:p:q@h", tcp("h", 6379, 0, None, Some("p:q"))),
            ("redis://u@h", tcp("h", 6379, 0, Some("u"), None)),
            ("redis://[::1]:7000/1", tcp("::1", 7000, 1, None, None)),
            ("redis://[::1]", tcp("::1", 6379, 0, None, None)),
        ] {
            assert_eq!(Address::parse(url).as_ref(), Ok(&expected), "{url}");
        }
    }

    #[test]
    fn sockets_may_have_spaces_and_be_relative() {
        for (url, path, database) in [
            ("/run/my redis.sock", "/run/my redis.sock", 0),
            ("./r.sock", "./r.sock", 0),
            ("unix:///run/a%20b.sock?db=2", "/run/a b.sock", 2),
            ("redis+unix://r.sock", "r.sock", 0),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.endpoint, address.database), (Endpoint::Unix(path.into()), database));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_and_never_shown() {
        for (url, error) in [
            ("", AddressError::Empty),
            ("http://h", AddressError::UnknownScheme("http".into())),
            ("localhost", AddressError::UnknownScheme("localhost".into())),
            ("rediss://h", AddressError::NoTls),
            ("redis://:S3#cret@h", AddressError::NotEncoded('#')),
            ("redis://:S3@cret@h", AddressError::NotEncoded('@')),
            ("redis://:S3/cret@h", AddressError::NotEncoded('/')),
            ("redis://:S3?cret@h", AddressError::NotEncoded('?')),
            ("redis://:S3%cret@h", AddressError::Encoding),
            ("redis://h:0", AddressError::Port),
            ("redis://h:65536", AddressError::Port),
            ("redis://h:x", AddressError::Port),
            ("redis://", AddressError::NoHost),
            ("redis://h/x", AddressError::Database),
            ("redis://h/+1", AddressError::Database),
            ("redis://h?protocol=3", AddressError::UnknownParameter("protocol".into())),
        ] {
            assert_eq!(Address::parse(url), Err(error.clone()), "{url}");
            assert!(!format!("{error} {}", error.hint()).contains("S3"), "{url}");
        }
    }
}
