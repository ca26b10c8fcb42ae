//! Lines of HAProxy's `option httplog`, with or without a syslog header.

use super::fault::LineFault;
use super::text_layout::split_request_line;

/// The fields of `option httplog`.
pub(super) const HAPROXY_FIELDS: [&str; 15] = [
    "client",
    "client_ip",
    "accept_date",
    "frontend",
    "backend",
    "server",
    "timers",
    "code",
    "bytes_sent",
    "termination_state",
    "request_headers",
    "response_headers",
    "method",
    "path",
    "protocol",
];

/// The values of [`HAPROXY_FIELDS`].
pub(super) fn split_haproxy(line: &str) -> Result<[&str; HAPROXY_FIELDS.len()], LineFault> {
    let missing = |column| LineFault::Column { format: "haproxy", column, bytes: 0 };
    // The date in brackets is the second column: anything before the first column is the syslog header.
    let date = line.find(" [").ok_or_else(|| missing("[accept date]"))?;
    let client = line[..date].rsplit(' ').next().unwrap_or_default();
    // An IPv6 address has no brackets: the port is after the last colon.
    let client_ip = client.rsplit_once(':').map_or(client, |(address, _)| address);
    let (accept_date, rest) = line[date + 2..].split_once("] ").ok_or_else(|| missing("[accept date]"))?;
    let (columns, request) = rest.split_once(" \"").ok_or_else(|| missing("\"request\""))?;
    let request = request.strip_suffix('"').unwrap_or(request);
    let mut fields = columns.split(' ');
    let mut next = |name| fields.next().filter(|column| !column.is_empty()).ok_or_else(|| missing(name));
    let frontend = next("frontend")?.trim_end_matches('~');
    let (backend, server) =
        next("backend/server")?.split_once('/').ok_or_else(|| missing("backend/server"))?;
    let (timers, code, bytes_sent) = (next("timers")?, next("status code")?, next("bytes read")?);
    let _cookies = (next("request cookie")?, next("response cookie")?);
    let (state, _connections, _queues) = (next("termination state")?, next("connections")?, next("queues")?);
    // A captured header can contain spaces.
    let (_, captured) = columns.split_once(" {").unwrap_or_default();
    let captured = captured.strip_suffix('}').unwrap_or(captured);
    let (request_headers, response_headers) = captured.split_once("} {").unwrap_or((captured, ""));
    let (method, path, protocol) = split_request_line(request);
    Ok([
        client,
        client_ip,
        accept_date,
        frontend,
        backend,
        server,
        timers,
        code,
        bytes_sent,
        state,
        request_headers,
        response_headers,
        method,
        path,
        protocol,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - \
                        ---- 1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"";

    #[test]
    fn a_line_is_read_with_and_without_a_header_of_syslog() {
        let with_header = format!("Feb  6 12:14:14 localhost haproxy[14389]: {LINE}");
        for line in [LINE, &with_header] {
            let values = split_haproxy(line).expect("a line of the format");
            let expected = [
                "10.0.1.2:33317",
                "10.0.1.2",
                "06/Feb/2009:12:14:14.655",
                "http-in",
                "static",
                "srv1",
                "10/0/30/69/109",
                "200",
                "2750",
                "----",
                "1wt.eu",
                "",
                "GET",
                "/index.html",
                "HTTP/1.1",
            ];
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn captured_headers_are_whole() {
        let table = [
            ("{Mozilla/5.0 (X11)|b c} {text/html; q=1}", ["Mozilla/5.0 (X11)|b c", "text/html; q=1"]),
            ("{} {a b}", ["", "a b"]),
            ("{a b}", ["a b", ""]),
        ];
        for (captured, expected) in table {
            let line = LINE.replacen("{1wt.eu} {}", captured, 1);
            assert_eq!(split_haproxy(&line).expect("a line of the format")[10..12], expected, "{captured}");
        }
        let none = LINE.replacen("{1wt.eu} {} ", "", 1);
        assert_eq!(split_haproxy(&none).expect("a line of the format")[10..12], ["", ""]);
    }

    #[test]
    fn the_address_of_a_client_has_no_port() {
        for address in ["10.0.1.2", "2001:db8::1", "::ffff:10.0.1.2"] {
            let line = LINE.replacen("10.0.1.2", address, 1);
            let values = split_haproxy(&line).expect("a line of the format");
            assert_eq!(values[..2], [&format!("{address}:33317"), address]);
        }
    }

    #[test]
    fn a_line_that_is_cut_names_the_column() {
        let fault = split_haproxy(&LINE[..60]).expect_err("no request");
        assert!(fault.to_string().contains("\"request\""), "{fault}");
        assert!(split_haproxy("Server started").is_err());
    }
}
