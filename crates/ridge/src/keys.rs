//! `ridge keys`: makes, lists and revokes the keys of clients, in a file that a running gateway watches.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use access::{Keys, NewKey, RANDOM_BYTES, key_line, listed_keys, make_key, parse_date, without_key};

use crate::Outcome;

/// More than `access` takes, which has the better message.
const MAX_FILE_BYTES: u64 = 9 << 20;

/// The subcommands of `ridge keys`.
#[derive(Debug, clap::Subcommand)]
pub enum KeysCommand {
    /// Make a key, add it to the file and print it: once, since the file holds only its hash
    Create(Create),
    /// List the keys of a file: ids, names, tenants, scopes
    List {
        /// The file, as in `auth.keys`
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
    },
    /// Take a key out of the file; a running gateway refuses it within two seconds
    Revoke {
        /// The file, as in `auth.keys`
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
        /// The key's id: what stands between the underscores of `rdg_ID_…`
        id: String,
    },
}

/// What a new key may do.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// The file, as in `auth.keys`; made if it is not there
    #[arg(long, value_name = "PATH")]
    file: PathBuf,
    /// What the key is called in logs
    #[arg(long)]
    name: String,
    /// Whose requests they are: a label of metrics and logs
    #[arg(long)]
    tenant: String,
    /// A model it may use, exact or `beginning*`; may be given again; all if not given
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// A path it may call, exact or `/beginning*`; may be given again; all if not given
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// Requests it may send a second; without it, any number
    #[arg(long, value_name = "N")]
    requests_per_second: Option<f64>,
    /// Requests that may come at once; without it, those of a second
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
    /// Prompt and output tokens it may use a minute; without it, any number
    #[arg(long, value_name = "N")]
    tokens_per_minute: Option<u64>,
    /// When it ends, UTC: 2027-01-31 or 2027-01-31T12:00:00Z; without it, never
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,
}

/// Carries a command out.
pub fn run(command: &KeysCommand) -> Outcome {
    let done = match command {
        KeysCommand::Create(create) => self::create(create),
        KeysCommand::List { file } => read(file).map(|text| listed_keys(&text).join("\n")),
        KeysCommand::Revoke { file, id } => revoke(file, id),
    };
    let text = done.map_err(|error| format!("error: {error}"))?;
    if !text.is_empty() {
        crate::notices::say(&text);
    }
    Ok(())
}

fn create(wanted: &Create) -> Result<String, String> {
    let expires_unix_s = match &wanted.expires {
        Some(date) => Some(
            parse_date(date)
                .ok_or_else(|| format!("`{date}` is no date: write 2027-01-31 or 2027-01-31T12:00:00Z"))?,
        ),
        None => None,
    };
    let key = NewKey {
        name: wanted.name.clone(),
        tenant: wanted.tenant.clone(),
        models: wanted.models.clone(),
        paths: wanted.paths.clone(),
        requests_per_second: wanted.requests_per_second,
        burst: wanted.burst,
        tokens_per_minute: wanted.tokens_per_minute,
        expires_unix_s,
    };
    let made = make_key(&random()?);
    let line = key_line(&made, &key)?;
    change(&wanted.file, true, |mut text| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text + &line)
    })?;
    eprintln!("key {} is in {}; it is shown this once:", made.id(), wanted.file.display());
    Ok(made.token().to_owned())
}

fn revoke(file: &Path, id: &str) -> Result<String, String> {
    change(file, false, |text| {
        without_key(&text, id).ok_or_else(|| {
            // Who gives the whole key instead of its id finds it in no log.
            let shown: String = id.chars().take(32).collect();
            let shown = if id.starts_with("rdg_") { "the key itself" } else { &shown };
            format!(
                "{} has no key with the id {shown}; `ridge keys list --file {0}` shows the ids",
                file.display()
            )
        })
    })?;
    Ok(format!("key {id} is revoked"))
}

/// The system's randomness.
fn random() -> Result<[u8; RANDOM_BYTES], String> {
    let mut bytes = [0; RANDOM_BYTES];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| format!("/dev/urandom cannot be read: {error}"))?;
    Ok(bytes)
}

fn read(file: &Path) -> Result<String, String> {
    let name = file.display();
    let text = discovery::read_file(file, MAX_FILE_BYTES)
        .map_err(|error| format!("{name} cannot be read: {error}"))?;
    String::from_utf8(text).map_err(|_| format!("{name} is not UTF-8"))
}

/// Changes the file as a whole or not at all: a new one is written beside it and put in its place. A gateway that
/// reads at that moment sees the old or the new one.
fn change(
    file: &Path,
    may_be_new: bool,
    edit: impl FnOnce(String) -> Result<String, String>,
) -> Result<(), String> {
    // A link stays one; what it points to is replaced.
    let file = match file.canonicalize() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && may_be_new => file.to_owned(),
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
    };
    let mut beside = file.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // It is the lock too: of two commands at one time the second is told.
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(
        |error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{} is there: another `ridge keys` is at work, or was cut off; remove it if none runs",
                beside.display()
            ),
            _ => format!("{} cannot be written: {error}", beside.display()),
        },
    )?;
    let done = replace(&file, &mut new, &beside, edit);
    if done.is_err() {
        let _ = fs::remove_file(&beside); // what went wrong before is the better message
    }
    done
}

fn replace(
    file: &Path,
    new: &mut File,
    beside: &Path,
    edit: impl FnOnce(String) -> Result<String, String>,
) -> Result<(), String> {
    let name = file.display().to_string();
    let before = file.metadata().ok();
    let text = match &before {
        Some(_) => read(file)?,
        None => String::new(),
    };
    let text = edit(text)?;
    // Whoever made the file by hand hears of a mistake now, not when the gateway refuses it.
    Keys::read([(name.as_str(), text.as_bytes())]).map_err(|error| error.to_string())?;
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", beside.display());
    new.write_all(text.as_bytes()).map_err(failed)?;
    if let Some(before) = before {
        // The gateway may run as another user, and must be able to read it as before.
        let now = new.metadata().map_err(failed)?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            fchown(&*new, Some(before.uid()), Some(before.gid())).map_err(failed)?;
        }
        let shared = before.mode() & 0o040; // a group may read it, nobody else
        new.set_permissions(fs::Permissions::from_mode(0o600 | shared)).map_err(failed)?;
    }
    new.sync_all().map_err(failed)?;
    fs::rename(beside, file).map_err(|error| format!("{name} cannot be replaced: {error}"))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| format!("{name}: {error}"))
}
