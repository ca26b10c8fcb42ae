//! TLS of the gRPC port, of Redis, and of the xDS server.

use super::draft::Draft;

/// Variables of one kind of connection, and the settings section that they set.
struct TlsVariables {
    switch: &'static str,
    certificate: &'static str,
    key: &'static str,
    authorities: &'static str,
    /// The name that the peer's certificate must have, or whether its name is checked.
    name: &'static str,
    section: &'static str,
}

const PORT: TlsVariables = TlsVariables {
    switch: "GRPC_SERVER_USE_TLS",
    certificate: "GRPC_SERVER_TLS_CERT",
    key: "GRPC_SERVER_TLS_KEY",
    authorities: "GRPC_CLIENT_TLS_CACERT",
    name: "GRPC_CLIENT_TLS_SAN",
    section: "server.grpc.tls",
};

/// The variables apply to both groups of servers.
const REDIS: TlsVariables = TlsVariables {
    switch: "REDIS_TLS",
    certificate: "REDIS_TLS_CLIENT_CERT",
    key: "REDIS_TLS_CLIENT_KEY",
    authorities: "REDIS_TLS_CACERT",
    name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    section: "store.redis.tls",
};

const XDS: TlsVariables = TlsVariables {
    switch: "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    certificate: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
    key: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
    authorities: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
    name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
    section: "rules.xds.tls",
};

pub(super) fn translate_port(draft: &mut Draft) {
    let TlsVariables { switch, authorities, name, .. } = PORT;
    if !draft.flag(switch) {
        return PORT.warn_without_switch(draft);
    }
    for (variable, setting) in [(PORT.certificate, "cert_file"), (PORT.key, "key_file")] {
        let path = draft.text(variable).to_owned();
        if path.is_empty() {
            draft.refuse(variable, format!("the path of a file, as {switch} is true"));
        } else {
            draft.set(&PORT.setting(setting), path, &[variable, switch]);
        }
    }
    if draft.text(authorities).is_empty() {
        if !draft.text(name).is_empty() {
            draft.warn_without(authorities, &[name]);
        }
        return;
    }
    draft.copy_if_not_empty(&PORT.setting("client_ca_file"), authorities);
    draft.copy_if_not_empty(&PORT.setting("client_san"), name);
}

/// `is_used`: `true` if the connections of one of the groups use TLS.
pub(super) fn translate_redis(draft: &mut Draft, is_used: bool) {
    if !is_used {
        return REDIS.warn_without_switch(draft);
    }
    REDIS.set_identity(draft);
    if draft.copy_if_not_empty(&REDIS.setting("ca_file"), REDIS.authorities) {
        draft.set(&REDIS.setting("system_authorities"), "true", &[REDIS.authorities]);
    }
    let verify = (!draft.flag(REDIS.name)).to_string();
    draft.set_if_given(&REDIS.setting("verify_name"), verify, REDIS.name);
}

pub(super) fn translate_xds(draft: &mut Draft) {
    if !draft.flag(XDS.switch) {
        return XDS.warn_without_switch(draft);
    }
    draft.set(&XDS.setting("enabled"), "true", &[XDS.switch]);
    XDS.set_identity(draft);
    draft.copy_if_not_empty(&XDS.setting("ca_file"), XDS.authorities);
    draft.copy_if_not_empty(&XDS.setting("server_name"), XDS.name);
}

impl TlsVariables {
    fn setting(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn warn_without_switch(&self, draft: &mut Draft) {
        let names = [self.certificate, self.key, self.authorities, self.name];
        draft.warn_without(&format!("{}=true", self.switch), &names);
    }

    /// Sets the certificate and key that the peer may request.
    fn set_identity(&self, draft: &mut Draft) {
        let Self { certificate, key, .. } = self;
        if draft.text(certificate).is_empty() == draft.text(key).is_empty() {
            draft.copy_if_not_empty(&self.setting("cert_file"), certificate);
            draft.copy_if_not_empty(&self.setting("key_file"), key);
        } else {
            let warning = format!("{certificate} and {key} belong together: one is not set, so none is used");
            draft.warn(warning);
        }
    }
}
