{{/*
The folders that are mounted: a list of `name`, `path` and `source`, the source of a volume. The settings name their
files. Folders, not single files: the kubelet never updates a file that is mounted with subPath.
*/}}
{{- define "ratelimitd.folders" -}}
- name: settings
  path: /etc/ratelimitd/settings
  source: { configMap: { name: {{ include "ratelimitd.name" . }} } }
{{- if include "ratelimitd.hasRuleFiles" . }}
- name: rules
  path: /etc/ratelimitd/rules
  source: { configMap: { name: {{ include "ratelimitd.rulesConfigMap" . }} } }
{{- end }}
{{- with include "ratelimitd.exceptionsSource" . }}
- name: exceptions
  path: /etc/ratelimitd/exceptions
  source: {{- . | nindent 4 }}
{{- end }}
{{- if .Values.redis.url }}
{{- with .Values.redis.passwordSecret }}
{{- if .name }}
- name: redis
  path: /etc/ratelimitd/redis
  source: { secret: { secretName: {{ .name }}, defaultMode: 0440, items: [{ key: {{ .key }}, path: password }] } }
{{- end }}
{{- end }}
{{- include "ratelimitd.caFolder" (dict "name" "redis-ca" "ca" .Values.redis.ca) }}
{{- include "ratelimitd.certificateFolder" (dict "name" "redis-certificate" "secret" .Values.redis.certificateSecret) }}
{{- end }}
{{- range $port, $tls := .Values.tls }}
{{- if $tls.certificateSecret }}
{{- include "ratelimitd.certificateFolder" (dict "name" (printf "%s-certificate" $port) "secret" $tls.certificateSecret) }}
{{- include "ratelimitd.caFolder" (dict "name" (printf "%s-client-ca" $port) "ca" $tls.clientCa) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ratelimitd.caFolder" -}}
{{- with .ca }}
{{- if and .secret .configMap }}
{{- fail (printf "%s: name a Secret or a ConfigMap of the authority, not both" $.name) }}
{{- end }}
{{- if or .secret .configMap }}
- name: {{ $.name }}
  path: /etc/ratelimitd/{{ $.name }}
  {{- if .secret }}
  source: { secret: { secretName: {{ .secret }}, items: [{ key: {{ .key }}, path: ca.crt }] } }
  {{- else }}
  source: { configMap: { name: {{ .configMap }}, items: [{ key: {{ .key }}, path: ca.crt }] } }
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ratelimitd.certificateFolder" -}}
{{- if .secret }}
- name: {{ .name }}
  path: /etc/ratelimitd/{{ .name }}
  source:
    secret:
      secretName: {{ .secret }}
      defaultMode: 0440
      items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
{{- end }}
{{- end -}}

{{/* The volume of the exceptions; empty: there are none. */}}
{{- define "ratelimitd.exceptionsSource" -}}
{{- with .Values.exceptions -}}
{{- if gt (len (compact (list .existingConfigMap (.files | toJson | replace "{}" "") (.volume | toJson | replace "{}" "")))) 1 -}}
{{- fail "exceptions: set one of files, existingConfigMap and volume" -}}
{{- end -}}
{{- if .files -}}
configMap: { name: {{ include "ratelimitd.name" $ }}-exceptions }
{{- else if .existingConfigMap -}}
configMap: { name: {{ .existingConfigMap }} }
{{- else if .volume -}}
{{- toYaml .volume -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The settings file: `settings`, over what follows from the other values and from where the files are mounted. */}}
{{- define "ratelimitd.settings" -}}
{{- $fixed := dict -}}
{{- if include "ratelimitd.hasRuleFiles" . -}}
{{- $_ := set $fixed "rules" (dict "path" "/etc/ratelimitd/rules") -}}
{{- end -}}
{{- if include "ratelimitd.exceptionsSource" . -}}
{{- $_ := set $fixed "exceptions" (dict "path" "/etc/ratelimitd/exceptions") -}}
{{- end -}}
{{- range $port, $tls := .Values.tls -}}
{{- if $tls.certificateSecret -}}
{{- $files := include "ratelimitd.identity" (printf "%s-certificate" $port) | fromYaml -}}
{{- if or $tls.clientCa.secret $tls.clientCa.configMap -}}
{{- $_ := set $files "client_ca_file" (printf "/etc/ratelimitd/%s-client-ca/ca.crt" $port) -}}
{{- end -}}
{{- if $tls.clientSan -}}
{{- $_ := set $files "client_san" $tls.clientSan -}}
{{- end -}}
{{- $fixed = mergeOverwrite $fixed (dict "server" (dict $port (dict "tls" $files))) -}}
{{- end -}}
{{- end -}}
{{- if .Values.redis.url -}}
{{- $_ := set $fixed "store" (dict "kind" "redis" "redis" (include "ratelimitd.redisSettings" . | fromYaml)) -}}
{{- end -}}
{{- mergeOverwrite $fixed (deepCopy .Values.settings) | toYaml -}}
{{- end -}}

{{- define "ratelimitd.redisSettings" -}}
{{- with .Values.redis -}}
topology: {{ .topology }}
url: {{ .url | quote }}
{{- if .passwordSecret.name }}
password_file: /etc/ratelimitd/redis/password
{{- end }}
{{- if or .ca.secret .ca.configMap .certificateSecret }}
tls:
  {{- if or .ca.secret .ca.configMap }}
  ca_file: /etc/ratelimitd/redis-ca/ca.crt
  {{- end }}
  {{- if .certificateSecret }}
  {{- include "ratelimitd.identity" "redis-certificate" | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ratelimitd.identity" -}}
cert_file: /etc/ratelimitd/{{ . }}/tls.crt
key_file: /etc/ratelimitd/{{ . }}/tls.key
{{- end -}}
