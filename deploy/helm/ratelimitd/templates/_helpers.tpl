{{/* The name of every object: the release's, with the chart's unless it contains it. */}}
{{- define "ratelimitd.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ratelimitd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ratelimitd.labels" -}}
{{ include "ratelimitd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "ratelimitd.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: no image is published; build it, push it to your registry, and name it here" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "ratelimitd.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "ratelimitd.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Whether the rules are files: not those of an xDS server. */}}
{{- define "ratelimitd.hasRuleFiles" -}}
{{- if not (dig "rules" "xds" "address" "" .Values.settings) }}true{{ end -}}
{{- end -}}

{{- define "ratelimitd.rulesConfigMap" -}}
{{- .Values.existingRulesConfigMap | default (printf "%s-rules" (include "ratelimitd.name" .)) -}}
{{- end -}}

{{/* The HTTP probe of a path, or the command if the port asks clients for a certificate. */}}
{{- define "ratelimitd.probe" -}}
{{- $tls := dig "server" "http" "tls" dict (include "ratelimitd.settings" .root | fromYaml) -}}
{{- if $tls.client_ca_file -}}
exec:
  command:
    - ratelimitd
    - health
    - --config
    - /etc/ratelimitd/settings/ratelimitd.yaml
    {{- if eq .path "/livez" }}
    - --live
    {{- end }}
{{- else -}}
httpGet: { path: {{ .path }}, port: http{{ if $tls.cert_file }}, scheme: HTTPS{{ end }} }
{{- end -}}
{{- end -}}

{{/* `https` or `appProtocol` without TLS, by the section of the settings. */}}
{{- define "ratelimitd.appProtocol" -}}
{{- $settings := include "ratelimitd.settings" .root | fromYaml -}}
{{- ternary "https" .clear (dig "server" .port "tls" "cert_file" "" $settings | ne "") -}}
{{- end -}}

{{/* The name of the port with the metrics. */}}
{{- define "ratelimitd.metricsPort" -}}
{{- ternary "metrics" "http" (include "ratelimitd.metricsPortNumber" . | ne "") -}}
{{- end -}}

{{/* The number of a port of their own; empty: the metrics are on the HTTP port only. */}}
{{- define "ratelimitd.metricsPortNumber" -}}
{{- $address := dig "metrics" "address" "off" .Values.settings -}}
{{- if ne $address "off" }}{{ regexFind "[0-9]+$" $address }}{{ end -}}
{{- end -}}
