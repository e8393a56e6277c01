// Compiles the CEL of ValidatingAdmissionPolicies, read as a YAML stream from standard input, with the language and
// libraries of one older Kubernetes version. Prints what does not compile, one line each; exits with 1 then.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// expression is a piece of CEL with the name of its place.
type expression struct {
	name, text string
	types      []*cel.Type
}

func (e *expression) GetExpression() string    { return e.text }
func (e *expression) GetName() string          { return e.name }
func (e *expression) ReturnTypes() []*cel.Type { return e.types }

func main() {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	count := 0
	for {
		document, err := reader.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(err)
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(document, &policy); err != nil || policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		set := environment.MustBaseEnvSet(version.MustParseGeneric(os.Args[1]))
		compiler, err := plugincel.NewCompositedCompiler(set)
		if err != nil {
			panic(err)
		}
		options := plugincel.OptionalVariableDeclarations{HasParams: false, HasAuthorizer: true}
		check := func(where, text string, kind *cel.Type) {
			count++
			result := compiler.CompileCELExpression(&expression{where, text, []*cel.Type{kind}}, options, environment.NewExpressions)
			if result.Error != nil {
				failed = true
				fmt.Printf("%s %s: %v\n", policy.Name, where, result.Error)
			}
		}
		for _, c := range policy.Spec.MatchConditions {
			check("matchCondition "+c.Name, c.Expression, cel.BoolType)
		}
		for _, v := range policy.Spec.Variables {
			result := compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, []*cel.Type{cel.AnyType, cel.DynType}}, options, environment.NewExpressions)
			count++
			if result.Error != nil {
				failed = true
				fmt.Printf("%s variable %s: %v\n", policy.Name, v.Name, result.Error)
			}
		}
		for i, v := range policy.Spec.Validations {
			check(fmt.Sprintf("validation %d", i), v.Expression, cel.BoolType)
			if v.MessageExpression != "" {
				check(fmt.Sprintf("messageExpression %d", i), v.MessageExpression, cel.StringType)
			}
		}
	}
	fmt.Println(count, "expressions of", os.Args[1])
	if failed {
		os.Exit(1)
	}
}
