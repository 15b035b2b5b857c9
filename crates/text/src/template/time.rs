//! `strftime_now` of templates that print the date.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time now in UTC by a format of C. Servers run in UTC, and the zone of the machine cannot be
/// known without unsafe code.
pub(super) fn strftime_now(format: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    strftime(now, format)
}

fn strftime(unix_s: u64, format: &str) -> String {
    let now = Moment::new(unix_s);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.next() {
            // `%-d` is GNU's way of saying: no padding.
            Some('-') => now.write(chars.next(), true, &mut text),
            spec => now.write(spec, false, &mut text),
        }
        .expect("strings can be written to");
    }
    text
}

/// A second of the calendar.
struct Moment {
    unix_s: u64,
    days: u64,
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Moment {
    fn new(unix_s: u64) -> Self {
        let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        Self { unix_s, days, year, month, day, hour, minute, second }
    }

    fn write(&self, spec: Option<char>, bare: bool, text: &mut String) -> std::fmt::Result {
        let Self { unix_s, days, year, month, day, hour, minute, second } = *self;
        let width = |width: usize| if bare { 0 } else { width };
        let two = width(2);
        let weekday = DAYS[usize::try_from((days + 4) % 7).unwrap_or(0)];
        match spec {
            Some('Y') => write!(text, "{year}"),
            Some('y') => write!(text, "{:0two$}", year % 100),
            Some('m') => write!(text, "{month:0two$}"),
            Some('d') => write!(text, "{day:0two$}"),
            Some('e') => write!(text, "{day:two$}"),
            Some('H') => write!(text, "{hour:0two$}"),
            Some('I') => write!(text, "{:0two$}", (hour + 11) % 12 + 1),
            Some('M') => write!(text, "{minute:0two$}"),
            Some('S') => write!(text, "{second:0two$}"),
            Some('j') => write!(text, "{:0w$}", days - days_before(year) + 1, w = width(3)),
            Some('p') => text.write_str(if hour < 12 { "AM" } else { "PM" }),
            Some('A') => text.write_str(weekday),
            Some('a') => text.write_str(&weekday[..3]),
            Some('B') => text.write_str(month_name(month)),
            Some('b' | 'h') => text.write_str(&month_name(month)[..3]),
            Some('F') => write!(text, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(text, "{hour:02}:{minute:02}:{second:02}"),
            Some('D') => write!(text, "{month:02}/{day:02}/{:02}", year % 100),
            Some('R') => write!(text, "{hour:02}:{minute:02}"),
            Some('s') => write!(text, "{unix_s}"),
            Some('Z') => text.write_str("UTC"),
            Some('z') => text.write_str("+0000"),
            Some('n') => text.write_char('\n'),
            Some('t') => text.write_char('\t'),
            Some('%') | None => text.write_char('%'),
            Some(other) => write!(text, "%{other}"),
        }
    }
}

fn month_name(month: u64) -> &'static str {
    MONTHS[usize::try_from(month - 1).unwrap_or(0) % 12]
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

/// Days from 1970 to the first of January of a year from 1970 on.
fn days_before(year: u64) -> u64 {
    let leap_days = |y: u64| y / 4 - y / 100 + y / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

/// Year, month and day of a day since 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let mut rest = days - days_before(year);
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |unix_s, expected: &str| {
            assert_eq!(strftime(unix_s, "%A %d %B %Y %H:%M:%S %j"), expected);
        };
        check(0, "Thursday 01 January 1970 00:00:00 001");
        check(951_782_399, "Monday 28 February 2000 23:59:59 059");
        check(951_782_400, "Tuesday 29 February 2000 00:00:00 060");
        check(1_735_689_599, "Tuesday 31 December 2024 23:59:59 366");
        check(1_772_323_200, "Sunday 01 March 2026 00:00:00 060");
        assert_eq!(strftime(0, "%-d/%-m %I %p %%"), "1/1 12 AM %");
    }
}
