//! Bounds a port's connections, in total and per client address. Counts the connections that it closes, and logs each
//! reason at most once a minute: a client can cause any number of them.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use base::log_throttle::LogThrottle;
use parking_lot::Mutex;

use super::idle::{IdleConnection, IdleConnections};
use crate::telemetry::metrics::{CloseReason, ConnectionMeter, Port};

/// Maximum connections of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBounds {
    pub total: usize,
    /// From one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: usize,
}

/// Connections of one port. Clones share them.
#[derive(Clone, Debug)]
pub struct Admission(Arc<PortConnections>);

#[derive(Debug)]
struct PortConnections {
    port: Port,
    bounds: ConnectionBounds,
    open: Mutex<OpenCounts>,
    meter: ConnectionMeter,
    /// In the order of [`CloseReason::ALL`].
    lines: [LogThrottle; CloseReason::ALL.len()],
}

#[derive(Debug, Default)]
struct OpenCounts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    idle: IdleConnections,
}

/// Idle connections are closed to keep one slot of the port in this many free.
const FREE_PART: usize = 16;

/// A connection counted by its port, until dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Admission,
    /// The client's IPv4 address or IPv6 network.
    pub(crate) address: IpAddr,
}

impl Admission {
    pub fn new(port: Port, bounds: ConnectionBounds, meter: ConnectionMeter) -> Self {
        let (open, lines) = (Mutex::default(), <[LogThrottle; CloseReason::ALL.len()]>::default());
        Self(Arc::new(PortConnections { port, bounds, open, meter, lines }))
    }

    /// Counts a connection of `client`, unless it is at a bound.
    pub(crate) fn admit(&self, client: IpAddr) -> Result<Admitted, CloseReason> {
        let admitted = self.count(client)?;
        self.keep_places_free();
        Ok(admitted)
    }

    fn count(&self, client: IpAddr) -> Result<Admitted, CloseReason> {
        let address = network(client);
        let ConnectionBounds { total, per_address } = self.0.bounds;
        let open = &mut *self.0.open.lock();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        // The bound per address comes first, because its reason names the client.
        if from_address >= per_address {
            return Err(CloseReason::Address);
        }
        if open.total >= total {
            return Err(CloseReason::Full);
        }
        open.total += 1;
        open.by_address.insert(address, from_address + 1);
        Ok(Admitted { admission: self.clone(), address })
    }

    /// Closes idle connections until enough slots are free, or no connection is idle.
    fn keep_places_free(&self) {
        let total = self.0.bounds.total;
        let next_to_close = || {
            let open = &mut *self.0.open.lock();
            let stays = open.total.saturating_sub(open.idle.closing());
            (stays > total - total / FREE_PART).then(|| open.idle.next_to_close()).flatten()
        };
        while let Some(closing) = next_to_close() {
            closing.cancel();
            self.record(CloseReason::Idle, None);
        }
    }

    /// Counts and logs a connection that is closed, or could not be accepted because of `cause`.
    pub(crate) fn record(&self, reason: CloseReason, cause: Option<&dyn Display>) {
        let state = &*self.0;
        state.meter.count(reason);
        let Some(connections) = state.lines[reason as usize].count() else { return };
        let (port, error) = (state.port.into_str(), cause.map(tracing::field::display));
        match reason {
            CloseReason::Full => {
                tracing::warn!(port, connections, "connections refused: port limit reached");
            }
            CloseReason::Address => {
                tracing::warn!(port, connections, "connections refused: per-address limit reached")
            }
            CloseReason::Idle => {
                tracing::warn!(port, connections, "idle connections closed; making room for new ones");
            }
            CloseReason::LeakedStreams => tracing::warn!(
                port,
                connections,
                "connections closed: clients reset too many calls or do not read responses"
            ),
            CloseReason::Handoff => {
                tracing::warn!(port, connections, "connections refused: worker does not accept them");
            }
            CloseReason::Accept => {
                tracing::warn!(port, connections, error, "cannot accept connections; retrying");
            }
        }
    }
}

impl Admitted {
    pub(crate) fn record_close(&self, reason: CloseReason) {
        self.admission.record(reason, None);
    }

    /// Records that the connection is idle, so that it can be closed when the port is nearly full. Returns its id among
    /// the idle connections.
    pub(crate) fn become_idle(&self, connection: IdleConnection) -> u64 {
        let id = self.admission.0.open.lock().idle.insert(self.address, connection);
        self.admission.keep_places_free();
        id
    }

    pub(crate) fn end_idleness(&self, id: u64) {
        self.admission.0.open.lock().idle.remove(self.address, id);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let open = &mut *self.admission.0.open.lock();
        open.total -= 1;
        if let Some(count) = open.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}

/// Returns the part of an address that identifies a client: a host usually has a whole IPv6 network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn admission(total: usize, per_address: usize) -> (Admission, Metrics) {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total, per_address };
        (Admission::new(Port::Http, bounds, metrics.connections(Port::Http)), metrics)
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let (admission, _metrics) = admission(3, 2);
        let [first, second] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let open: Vec<_> = [first, first].map(|address| admission.admit(address)).into();
        assert!(open.iter().all(Result::is_ok));
        assert_eq!(admission.admit(first).err(), Some(CloseReason::Address));
        let other = admission.admit(second).expect("another address");
        assert_eq!(admission.admit(second).err(), Some(CloseReason::Full));
        drop(open);
        assert!(admission.admit(first).is_ok());
        drop(other);
        assert_eq!(admission.0.open.lock().total, 0);
        assert!(admission.0.open.lock().by_address.is_empty(), "no memory of addresses without connections");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let (admission, _metrics) = admission(10, 1);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let _open = admission.admit(address("2001:db8::1")).expect("the first");
        assert!(admission.admit(address("2001:db8::ffff:2")).is_err(), "the same network");
        assert!(admission.admit(address("2001:db8:0:1::1")).is_ok(), "another network");
        let _open = admission.admit(address("::ffff:10.0.0.1")).expect("the first");
        assert!(admission.admit(address("10.0.0.1")).is_err(), "the same IPv4 address");
        assert!(admission.admit(address("::ffff:10.0.0.2")).is_ok(), "another IPv4 address");
    }

    #[test]
    fn closed_connections_are_counted_by_port_and_reason() {
        let (admission, metrics) = admission(1, 1);
        admission.record(CloseReason::Idle, None);
        let text = metrics.render().expect("metrics");
        for line in [
            r#"ratelimitd_closed_connections_total{port="http",reason="idle"} 1"#,
            r#"ratelimitd_closed_connections_total{port="grpc",reason="idle"} 0"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }
}
