{{/* Thousandths of a CPU in a quantity such as 2, "2", "0.5" or "500m"; the argument is the quantity. */}}
{{- define "cpuplan.milliCpus" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text -}}
{{- trimSuffix "m" $text | int64 -}}
{{- else -}}
{{- mulf (float64 $text) 1000.0 | int64 -}}
{{- end -}}
{{- end -}}

{{/*
Refuses resources that would give the agent exclusive CPUs under the kubelet's static CPU policy: limits of whole CPUs
and of memory, with requests that are absent (then they equal the limits) or equal.
*/}}
{{- define "cpuplan.refuseExclusiveAgent" -}}
{{- $limits := .Values.agent.resources.limits | default dict -}}
{{- $requests := .Values.agent.resources.requests | default dict -}}
{{- if and (hasKey $limits "cpu") (hasKey $limits "memory") -}}
{{- $limit := include "cpuplan.milliCpus" $limits.cpu | int64 -}}
{{- $request := include "cpuplan.milliCpus" (get $requests "cpu" | default $limits.cpu) | int64 -}}
{{- $sameMemory := eq (get $requests "memory" | default $limits.memory | toString) ($limits.memory | toString) -}}
{{- if and (eq $limit $request) $sameMemory (gt $limit 0) (eq (mod $limit 1000) 0) -}}
{{- fail (printf "agent.resources: a Guaranteed pod with %v whole CPUs would leave the shared CPU pool, which the agent reports from its own affinity; leave out limits.cpu, or set requests.cpu below it" $limits.cpu) -}}
{{- end -}}
{{- end -}}
{{- end -}}
