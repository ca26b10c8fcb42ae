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

{{- define "ratelimitd.rulesConfigMap" -}}
{{- .Values.existingRulesConfigMap | default (printf "%s-rules" (include "ratelimitd.name" .)) -}}
{{- end -}}

{{/* The settings file: the values, over what follows from where the files are mounted. */}}
{{- define "ratelimitd.settings" -}}
{{- $fixed := dict "rules" (dict "path" "/etc/ratelimitd/rules") -}}
{{- if .Values.redis.url -}}
{{- $redis := dict "topology" .Values.redis.topology "url" .Values.redis.url -}}
{{- if .Values.redis.passwordSecret.name -}}
{{- $_ := set $redis "password_file" "/etc/ratelimitd/redis/password" -}}
{{- end -}}
{{- $_ := set $fixed "store" (dict "kind" "redis" "redis" $redis) -}}
{{- end -}}
{{- mergeOverwrite $fixed (deepCopy .Values.settings) | toYaml -}}
{{- end -}}
