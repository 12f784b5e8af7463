// manifests builds a Kustomize folder and decodes documents of the Prometheus operator strictly, for tests.
package main

import (
	"fmt"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: manifests build FOLDER | manifests decode FILE"))
	}
	if os.Args[1] == "build" {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), os.Args[2])
		fail(err)
		text, err := built.AsYaml()
		fail(err)
		fmt.Print(string(text))
		return
	}
	text, err := os.ReadFile(os.Args[2])
	fail(err)
	var head struct {
		Kind string `json:"kind"`
	}
	fail(yaml.Unmarshal(text, &head))
	var into any
	switch head.Kind {
	case "ServiceMonitor":
		into = &monitoring.ServiceMonitor{}
	case "PrometheusRule":
		into = &monitoring.PrometheusRule{}
	default:
		fail(fmt.Errorf("%s: kind %q is not known here", os.Args[2], head.Kind))
	}
	fail(yaml.UnmarshalStrict(text, into))
	fmt.Println(head.Kind)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
