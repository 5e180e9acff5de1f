use super::*;

#[test]
fn the_header_says_when_a_stream_is_told_that_it_waits() {
    let configured = Duration::from_secs(10);
    let of = |value: Option<&str>| {
        let headers =
            value.map(|v| (header::HeaderName::from_static("x-motorpool-loading"), v.parse().expect("a value")));
        CommitAfter::of(&headers.into_iter().collect(), configured).map_err(|f| f.verdict().code)
    };
    for (value, want) in [
        (None, Ok(CommitAfter::Time(configured))),
        (Some("comments"), Ok(CommitAfter::Time(configured))),
        (Some("content"), Ok(CommitAfter::Content(configured))),
        (Some("off"), Ok(CommitAfter::Never)),
        (Some("0"), Ok(CommitAfter::Time(Duration::ZERO))),
        (Some("25"), Ok(CommitAfter::Time(Duration::from_secs(25)))),
        (Some("-1"), Err("invalid_request")),
        (Some("soon"), Err("invalid_request")),
    ] {
        assert_eq!(of(value), want, "{value:?}");
    }
}
