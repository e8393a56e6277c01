{{/*
Names are fixed, not derived from the release: annotations, label and policies are one per cluster, so a second
release must meet the first one's objects and be refused by Helm.
*/}}

{{- define "cpuplan.labels" -}}
app.kubernetes.io/name: cpuplan
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Labels that select one component's pods. Arguments: the component's name. */}}
{{- define "cpuplan.selector" -}}
app.kubernetes.io/name: cpuplan
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "cpuplan.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The agents' user name, as admission policies and audit logs see it. */}}
{{- define "cpuplan.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:cpuplan-agent
{{- end -}}

{{/* Whether the mutating policies are installed: "true" or empty. */}}
{{- define "cpuplan.mutates" -}}
{{- $known := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if or (eq .Values.policies.mutating "enabled") (and (eq .Values.policies.mutating "auto") $known) -}}
true
{{- end -}}
{{- end -}}
