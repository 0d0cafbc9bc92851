//! The MessagePack timestamp (ext -1) and RFC 3339.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::msgpack;

/// The ext type of a timestamp.
pub const EXT_TYPE: i8 = -1;

/// 0001-01-01T00:00:00Z, in seconds since 1970.
const SECONDS_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z, in seconds since 1970.
const SECONDS_MAX: i64 = 253_402_300_799;
const NANOSECONDS_MAX: u32 = 999_999_999;

/// The RFC 3339 text of a timestamp's data, in UTC and with as many digits of fraction as it needs. None if
/// the data is malformed or its year is not one of 0001 to 9999.
pub fn to_rfc3339(data: &[u8]) -> Option<String> {
    let (seconds, nanoseconds) = parts(data)?;
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) || nanoseconds > NANOSECONDS_MAX {
        return None;
    }
    let at = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let (hour, minute, second) = at.to_hms();
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanoseconds != 0 {
        let fraction = format!("{nanoseconds:09}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push('Z');
    Some(text)
}

/// Writes the shortest timestamp for an RFC 3339 text. False, with nothing written, if it is none, needs
/// more than nanoseconds, or lies outside the years 0001 to 9999 in UTC.
pub(super) fn write_rfc3339(out: &mut Vec<u8>, text: &str) -> bool {
    // The parser would cut the digits beyond the ninth, and bend a leap second: neither can be kept exactly.
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let leap_second = text.get(17..19) == Some("60");
    if digits > 9 || leap_second {
        return false;
    }
    let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) else { return false };
    let (seconds, nanoseconds) = (at.unix_timestamp(), at.nanosecond());
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        return false;
    }
    match (u32::try_from(seconds), u64::try_from(seconds)) {
        (Ok(seconds), _) if nanoseconds == 0 => msgpack::write_ext(out, EXT_TYPE, &seconds.to_be_bytes()),
        (_, Ok(seconds)) if seconds < 1 << 34 => {
            let packed = u64::from(nanoseconds) << 34 | seconds;
            msgpack::write_ext(out, EXT_TYPE, &packed.to_be_bytes());
        }
        _ => {
            let mut data = [0; 12];
            let (low, high) = data.split_at_mut(4);
            low.copy_from_slice(&nanoseconds.to_be_bytes());
            high.copy_from_slice(&seconds.to_be_bytes());
            msgpack::write_ext(out, EXT_TYPE, &data);
        }
    }
    true
}

/// Seconds since 1970 and nanoseconds, from the data of the three lengths that exist.
fn parts(data: &[u8]) -> Option<(i64, u32)> {
    if let Ok(seconds) = data.try_into() {
        return Some((i64::from(u32::from_be_bytes(seconds)), 0));
    }
    if let Ok(packed) = data.try_into() {
        let packed = u64::from_be_bytes(packed);
        let seconds = i64::try_from(packed & ((1 << 34) - 1)).ok()?;
        return Some((seconds, u32::try_from(packed >> 34).ok()?));
    }
    let (nanoseconds, rest) = data.split_first_chunk()?;
    Some((i64::from_be_bytes(rest.try_into().ok()?), u32::from_be_bytes(*nanoseconds)))
}
