{{/*
Fragments of CEL, so that a rule that several policies share is written once. The validating policies use the CEL of
Kubernetes 1.30 only (no comprehensions over two variables, no format library).
*/}}

{{/* The keys that users write. */}}
{{- define "cpuplan.cel.userKeys" -}}
["step_thread_core", "cpuplan.dev/workers", "cpuplan.dev/container", "cpuplan.dev/selftest"]
{{- end -}}

{{/* The keys that agents write. */}}
{{- define "cpuplan.cel.agentKeys" -}}
["cpuplan.dev/status", "cpuplan.dev/why", "cpuplan.dev/step-cpus", "cpuplan.dev/result-cpu", "cpuplan.dev/usable-cpus", "cpuplan.dev/plan", "cpuplan.dev/hostflag"]
{{- end -}}

{{/* Whether annotation key k is ours: under the prefix, and not one of the users'. */}}
{{- define "cpuplan.cel.isOurs" -}}
(k.startsWith("cpuplan.dev/") && !(k in {{ include "cpuplan.cel.userKeys" . }}))
{{- end -}}

{{/* Whether extended resource k is a GPU. */}}
{{- define "cpuplan.cel.isDevice" -}}
{{- $whole := list -}}
{{- $tests := list -}}
{{- range .Values.deviceResources -}}
{{- if hasSuffix "*" . -}}
{{- $tests = append $tests (printf "k.startsWith(%q)" (trimSuffix "*" .)) -}}
{{- else -}}
{{- $whole = append $whole . -}}
{{- end -}}
{{- end -}}
({{ prepend $tests (printf "k in %s" (toJson $whole)) | join " || " }})
{{- end -}}

{{/* Whether container c has a device: a GPU resource in its limits, or a DRA claim. */}}
{{- define "cpuplan.cel.hasDevice" -}}
(c.?resources.limits.orValue({}).exists(k, {{ include "cpuplan.cel.isDevice" . }}) || has(c.resources) && has(c.resources.claims))
{{- end -}}

{{/* The paths that occupy the place of the plan: /etc/cpuplan itself, something in it, or all of /etc. */}}
{{- define "cpuplan.cel.planDirPaths" -}}
"^/*etc(/+(cpuplan(/.*)?)?)?$"
{{- end -}}

{{/* Whether container c occupies the place of the plan. */}}
{{- define "cpuplan.cel.occupiesPlanDir" -}}
(c.?volumeMounts.orValue([]).exists(m, m.mountPath.matches({{ include "cpuplan.cel.planDirPaths" . }})) ||
c.?volumeDevices.orValue([]).exists(d, d.devicePath.matches({{ include "cpuplan.cel.planDirPaths" . }})))
{{- end -}}

{{/* What the request is about, for messages: kind, namespace and name. */}}
{{- define "cpuplan.cel.objectName" -}}
request.kind.kind + " " + request.?namespace.orValue("") + "/" + object.metadata.name
{{- end -}}

{{/* The metadata of the pod, or of the pod template, in `object` or `oldObject` (the argument); an optional. */}}
{{- define "cpuplan.cel.podMetadata" -}}
(request.resource.resource in ["pods", "bindings"] ? dyn({{ . }}).?metadata :
request.resource.resource == "podtemplates" ? dyn({{ . }}).?template.metadata :
request.resource.resource == "cronjobs" ? dyn({{ . }}).?spec.jobTemplate.spec.template.metadata :
dyn({{ . }}).?spec.template.metadata)
{{- end -}}

{{/* The spec of the pod, or of the pod template, in `object` or `oldObject` (the argument); an optional. */}}
{{- define "cpuplan.cel.podSpec" -}}
(request.resource.resource in ["pods", "bindings"] ? dyn({{ . }}).?spec :
request.resource.resource == "podtemplates" ? dyn({{ . }}).?template.spec :
request.resource.resource == "cronjobs" ? dyn({{ . }}).?spec.jobTemplate.spec.template.spec :
dyn({{ . }}).?spec.template.spec)
{{- end -}}

{{/* The names of what runs as long as the pod: its containers and native sidecars. Arguments as above. */}}
{{- define "cpuplan.cel.lastingNames" -}}
({{ include "cpuplan.cel.podSpec" . }}.?containers.orValue([]).map(c, string(c.name)) +
{{ include "cpuplan.cel.podSpec" . }}.?initContainers.orValue([]).filter(c, c.?restartPolicy.orValue("") == "Always").map(c, string(c.name)))
{{- end -}}

{{/* Whether the pod `object` deserves the label. A status on a new pod is stripped, whichever policy comes first. */}}
{{- define "cpuplan.cel.isManaged" -}}
(object.?metadata.annotations["step_thread_core"].hasValue() ||
object.?metadata.annotations["cpuplan.dev/status"].hasValue() && request.operation != "CREATE")
{{- end -}}

{{/* The value of a user's annotation (the argument is its key) as a message may show it: on one line, not endless. */}}
{{- define "cpuplan.cel.shown" -}}
(variables.new[{{ . | quote }}].matches("^[ -~]{0,60}$")
? "\"" + variables.new[{{ . | quote }}] + "\""
: "a value of " + string(size(variables.new[{{ . | quote }}])) + " characters")
{{- end -}}

{{/*
Patches that give the planned ones of a list of containers the plan volume and CPUPLAN_CONTAINER. The argument is the
list's field in the pod's spec and how far the patches so far have moved its entries.
*/}}
{{- define "cpuplan.cel.planInContainers" -}}
{{- $list := first (splitList " " .) -}}
{{- $path := printf "\"/spec/%s/\" + string(i + %s)" $list (last (splitList " " .)) -}}
object.spec.?{{ $list }}.orValue([]).transformList(i, c, c.name in variables.plannedNames,
  (has(c.volumeMounts) ? [] : [JSONPatch{op: "add", path: {{ $path }} + "/volumeMounts", value: []}]) +
  [JSONPatch{op: "add", path: {{ $path }} + "/volumeMounts/-", value:
    Object.spec.{{ $list }}.volumeMounts{name: "cpuplan", mountPath: "/etc/cpuplan", readOnly: true}}] +
  (has(c.env) ? [] : [JSONPatch{op: "add", path: {{ $path }} + "/env", value: []}]) +
  (c.?env.orValue([]).exists(e, e.name == "CPUPLAN_CONTAINER") ? [] : [
    JSONPatch{op: "add", path: {{ $path }} + "/env/-", value:
      Object.spec.{{ $list }}.env{name: "CPUPLAN_CONTAINER", value: c.name}}])).flatten()
{{- end -}}
