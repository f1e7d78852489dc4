# Stillwire's tasks. `make demo` and `make test` need nothing but Go, git and make; they
# fetch or install the rest, or say what is missing.
#
#   make build   the static binary, bin/stillwire
#   make demo    real WireGuard traffic through a device that is changed 10,000 times
#   make test    every test, with the race detector; none may skip
#   make box     Kubernetes and etcd for the tests, bin/box: 10 to 20 minutes the first
#                time, then kept in the user's cache folder; make test makes it too
#   make lint    gofmt, go vet, staticcheck, go.mod in order
#   make fuzz    every fuzz target for FUZZTIME (20s)
#   make bench   every benchmark
#   make fmt     gofmt all files
#   make image   the container image for amd64 and arm64, dist/*.tar
#   make generate  deep copies and custom resource definitions, from mesh/kube/v1alpha1

GO       ?= go
FUZZTIME ?= 20s
ARGS     ?=

# The commit is stamped into the binary where git can tell it.
VCS     := $(shell git status --porcelain >/dev/null 2>&1 && echo true || echo false)
TOOLS   := bin/tools
GOFILES  = $(shell find . -name '*.go' -not -path './.git/*')

export GO FUZZTIME TOOLS

.DELETE_ON_ERROR:
.PHONY: build box test lint fuzz bench demo fmt image generate setup clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(VCS) -o bin/stillwire ./cmd/stillwire

demo: build
	bin/stillwire demo $(ARGS)

setup:
	test/setup.sh

box:
	test/kube/box/build.sh bin/box

test: $(TOOLS)/stamp setup box
	test/run.sh

lint: $(TOOLS)/stamp
	test/lint.sh

fuzz:
	test/fuzz.sh

bench:
	$(GO) test -run='^$$' -bench=. -benchmem ./...

fmt:
	gofmt -s -w $(GOFILES)

image:
	deploy/image/build.sh amd64 dist/stillwire-amd64.tar
	deploy/image/build.sh arm64 dist/stillwire-arm64.tar

generate: $(TOOLS)/stamp
	test/generate.sh .

clean:
	rm -rf bin dist

# The tools have a module file of their own, so that they never meet the product's.
$(TOOLS)/stamp: .ci/tools.mod .ci/tools.sum | setup
	$(GO) build -modfile=.ci/tools.mod -buildvcs=false -o $(TOOLS)/ \
		honnef.co/go/tools/cmd/staticcheck gotest.tools/gotestsum sigs.k8s.io/controller-tools/cmd/controller-gen
	touch $@
