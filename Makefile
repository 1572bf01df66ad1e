# The tasks of this project. All but interop run without root, and none needs a network beyond loopback
# except lint, which installs the linter through the Go module proxy the first time.

GO       ?= go
FUZZTIME ?= 10s
PKG      ?= ./...

# Pinned here and nowhere else.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

.PHONY: all build test race fuzz bench interop lint vet cross docs ci help

all: build test lint ## build, test and lint

build: ## the tools, as bin/verbena, with a link for each tool's name
	CGO_ENABLED=0 $(GO) build -o bin/verbena ./cmd/verbena
	bin/verbena links bin

test: ## every test; PKG=./verbs for one package
	$(GO) test $(PKG)

race: ## the same under the race detector, which needs a C compiler
	@.ci/race $(PKG)

fuzz: ## each fuzz target for FUZZTIME; PKG=./internal/wire for one package
	@.ci/fuzz $(FUZZTIME) $(PKG)

bench: ## speed and size, as ratios to TCP, compared with the first run here, then the packages' benchmarks with their allocations
	@mkdir -p bin
	$(GO) run ./cmd/verbena bench --against bin/bench.json
	$(GO) test -run '^$$' -bench . -benchmem -benchtime 200ms $(PKG)

interop: ## against Linux soft-RoCE in a virtual machine; needs root, see interop/lab/README.md
	interop/run

lint: $(GOLANGCI) ## gofmt, go vet and golangci-lint
	$(GOLANGCI) run --allow-parallel-runners ./...

$(GOLANGCI):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin/.install GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/.install/golangci-lint $@
	rmdir bin/.install

vet: ## go vet
	$(GO) vet ./...

cross: ## builds and vets, tests included, for the systems and processors that we promise
	@.ci/cross

docs: ## the table from C names to Go names, that of statements and tests, and a check of the links between the pages
	$(GO) run ./internal/tools/ctable -w docs/c-to-go.md
	$(GO) run ./internal/tools/conformance -w docs/conformance.md
	$(GO) run ./internal/tools/mdlinks .

ci: ## what runs before each change lands
	.ci/run

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
