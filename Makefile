# The tasks of this project. All but interop and attack run without root, and none needs a network beyond loopback
# except lint and locks, which install their tools through the Go module proxy the first time.

GO       ?= go
FUZZTIME ?= 10s
PKG      ?= ./...
RUNS     ?= 1000000
SEED     ?= 1
N        ?= 100

# The compiler favours the calls of this profile. Builds without it, as by go install, differ only in speed.
PGO      := -pgo=cmd/verbena/verbena.pgo

# Pinned here and nowhere else.
GOLANGCI_VERSION := v2.15.0
GORELEASER_VERSION := v2.14.0
CYCLONEDX_VERSION := v1.10.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

# These are no files.
.PHONY: test-arm64 test-arm test-s390x test-386 test-windows release-tools release-snapshot container
.PHONY: all build build-hw profile test race fuzz mutants soak bench attack nightly interop lint vet cross docs ci help locks cabi cabi-asan cabi-test cabi-pyverbs

all: build test lint ## build, test and lint

build: ## the tools, as bin/verbena, with a link for each tool's name
	CGO_ENABLED=0 $(GO) build $(PGO) -o bin/verbena ./cmd/verbena
	bin/verbena links bin

build-hw: ## the tools with the devices of this machine too, as bin/verbena-hw; linked with the C library
	CGO_ENABLED=0 $(GO) build $(PGO) -tags hw -o bin/verbena-hw ./cmd/verbena

test: ## every test; PKG=./verbs for one package
	$(GO) test $(PKG)

race: ## the same under the race detector, which needs a C compiler
	@.ci/race $(PKG)

test-arm64: ## the tests for arm64 in qemu-user, as far as it goes; PKG=./verbs for one package
	@.ci/emulated arm64 $(PKG)

test-arm test-s390x test-386: ## the same for a 32-bit, a big-endian and a 32-bit processor without an emulator
	@.ci/emulated $(@:test-%=%) $(PKG)

test-windows: ## the tests for Windows in Wine, as far as it goes; PKG=./verbs for one package
	@.ci/emulated windows $(PKG)

fuzz: ## each fuzz target for FUZZTIME; PKG=./internal/wire for one package
	@.ci/fuzz $(FUZZTIME) $(PKG)

soak: ## random verbs programs over faulty networks, RUNS from SEED on; interrupted, it goes on where it was
	$(GO) build -o bin/soak -ldflags "-X main.revision=$$(git describe --always --dirty)" ./internal/tools/soak
	bin/soak -runs $(RUNS) -seed $(SEED) -progress bin/soak-$(SEED).json

bench: ## speed and size, as ratios to TCP, compared with the first run here, then the packages' benchmarks with their allocations
	@mkdir -p bin
	$(GO) run ./cmd/verbena bench --against bin/bench.json
	$(GO) test -run '^$$' -bench . -benchmem -benchtime 200ms $(PKG)

profile: ## cmd/verbena/verbena.pgo anew, from the benchmarks of the data path; for a machine without other work
	@mkdir -p bin/profile
	$(GO) test ./provider/soft -run '^$$' -bench 'PingPong|RoundTrip|BothEnds|Write|ManyQPs' -cpuprofile bin/profile/soft -o bin/profile/soft.test
	$(GO) test ./rsocket -run '^$$' -bench 'Stream|Request' -cpuprofile bin/profile/rsocket -o bin/profile/rsocket.test
	$(GO) test ./internal/link/udp -run '^$$' -bench 'Transfer|Turnaround' -cpuprofile bin/profile/udp -o bin/profile/udp.test
	$(GO) tool pprof -proto bin/profile/soft bin/profile/rsocket bin/profile/udp >cmd/verbena/verbena.pgo

cabi: build ## the C libraries in bin/cabi, for "bin/verbena run -- PROGRAM"; needs gcc
	@cabi/build bin/cabi

cabi-asan: build ## the same with the address and undefined behaviour sanitizers, in bin/cabi-asan
	@cabi/build --asan bin/cabi-asan

cabi-test: ## installs Debian's RDMA programs with apt-get and runs them on the C libraries; needs root to install
	apt-get install -y --no-install-recommends gcc libc6-dev binutils libibverbs-dev librdmacm-dev libibumad-dev ibverbs-utils rdmacm-utils infiniband-diags perftest curl iperf3 nginx-light python3 redis-server
	@.ci/cabi all

cabi-pyverbs: cabi ## rdma-core's own tests, RUNS=20 times on two devices, over UDP and with loss; needs python3-pyverbs
	$(GO) run ./cabi/pyverbs -runs $(if $(filter file,$(origin RUNS)),20,$(RUNS)) bin/verbena

attack: ## what hostile peers, strangers and other users can do, tried on running programs; see docs/security.md
	$(GO) run ./interop/attack

mutants: ## which of N=100 small faults, chosen by SEED=1, no test of the package PKG=DIR notices
	$(GO) run ./internal/tools/mutants -n $(N) -seed $(SEED) $(PKG)

nightly: ## attack, with its sweep of descriptor limits and refused system calls, each fuzz target for 5 minutes, soak
	$(GO) run ./interop/attack
	@.ci/fuzz 5m $(PKG)
	$(MAKE) soak

interop: ## against Linux soft-RoCE in a virtual machine; needs root, see interop/lab/README.md
	interop/run

lint: $(GOLANGCI) ## gofmt, go vet, golangci-lint, and the rules about imports and links
	$(GOLANGCI) run --allow-parallel-runners ./...
	$(GO) test ./internal/tools/floors ./internal/tools/mdlinks

$(GOLANGCI):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin/.install GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/.install/golangci-lint $@
	rmdir bin/.install

release-tools: ## goreleaser and cyclonedx-gomod in bin
	GOBIN=$(CURDIR)/bin GOFLAGS= $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)
	GOBIN=$(CURDIR)/bin GOFLAGS= $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

release-snapshot: release-tools ## what a tag would release, in dist: archives, packages, SBOMs, checksums; no container
	PATH=$(CURDIR)/bin:$$PATH goreleaser release --snapshot --clean --skip=docker,publish

container: ## the container image verbena:local, with docker or podman; needs no network
	@mkdir -p bin/container/linux/$$($(GO) env GOARCH)
	CGO_ENABLED=0 GOOS=linux $(GO) build $(PGO) -o bin/container/linux/$$($(GO) env GOARCH)/verbena ./cmd/verbena
	$$(command -v podman || echo docker) build -t verbena:local -f deploy/container/Dockerfile \
		--build-arg TARGETPLATFORM=linux/$$($(GO) env GOARCH) bin/container

locks: ## lock annotations; PKG=./verbs for one package
	@.ci/locks $(PKG)

vet: ## go vet
	$(GO) vet ./...

cross: ## builds and vets, tests included, for the systems and processors that we promise
	@.ci/cross

docs: ## the generated pages and pictures, and a check of the links between the pages
	$(GO) run ./internal/tools/ctable -w docs/c-to-go.md
	$(GO) run ./internal/tools/conformance -w docs/conformance.md
	$(GO) run ./internal/tools/floors -w docs/floors.svg
	$(GO) run ./internal/tools/mdlinks .

ci: ## what runs before each change lands
	.ci/run

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
