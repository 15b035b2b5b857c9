"""What the demo knows about itself and about Lily. Each topic: an answer, words that a right answer has, wordings.

The wordings are in the language of `grammar.py`. The questions in HELD_OUT are never trained on, nor any with nearly
their words.
"""
import random

import grammar

IT = "(lily|it|this|this program|the program|lily)"
REAL = "(real|big|full|actual|large|proper|35b|35B|original|complete|qwen|Qwen3.6) (model|one|thing|weights|checkpoint|model|model)"
HOW = "(how (do|can|could|would|should|might|must) (i|you|one|we)|how to|what is the way to|what do i do to|what (do|must|should) i (do|type|enter) to|(please |)(show|tell|explain to) me how to|i (want|need|would like|am trying) to know how to|is there a way to|can i|steps to|help me)"
WHAT = "(what is|what's|what are|tell me|show me|list|name|which are|give me|i need)"

TOPICS = {
    "self": ("I am Lily's demo model: a tiny sibling of Qwen3.6-35B-A3B with a few million parameters, built into the program. I know very little.",
             ["demo model"],
             ["what are you", "who are you", "(what|which) [kind of|sort of|type of] (model|ai|assistant|program|bot|thing|llm) (are you|is this|am i talking to|am i speaking with|is answering)",
              "(tell me|say something|talk|i want to hear) about yourself", "(introduce|describe|explain) yourself", "what is this [model|bot|assistant]",
              "are you (a real|a proper|the real|a large|a big|the full) model", "what can you tell me about yourself", "what('s| is) your name", "(your name|name please|and your name)",
              "(who|whom) am i (talking|speaking|chatting|writing) (to|with)", "are you (chatgpt|gpt|claude|qwen|an ai|a robot|a bot|human|a person|a machine|alive|real|siri|a language model|gemini|llama|an llm)",
              "do you have a name", "who (is there|is speaking|is talking|answers me here|am i chatting with)", "(what|who) (do|should) i call you", "am i talking to (a human|a person|a machine|the real model|qwen|an ai)",
              "is this (chatgpt|the real model|qwen|a demo|the demo|an ai|a bot)", "which version are you", "(are you|is this) the (35b|qwen3.6|big) model", "what model (is this|runs here|do i have here)",
              "i (do not|don't) know you, (who|what) are you", "(can|could|would) you (introduce yourself|say who you are|tell me what you are|describe yourself)", "identify yourself", "(state|say) your name"]),
    "load": ("To load the real model, download a Qwen3.6-35B-A3B checkpoint to a folder and run `lily chat -m DIR`, or `lily serve -m DIR` for the API.",
             ["-m"],
             [f"{HOW} (load|run|use|start|open|launch|get|try|switch to|change to|chat with|talk to|set up|get to) the {REAL}",
              f"{HOW} (load|run|use|start|open|switch to) (another|a different|a bigger|a larger|a better|my own|a local) (model|checkpoint)",
              f"{HOW} (load|open|use|run) a (checkpoint|model) [from a (folder|directory)|i downloaded|on my disk]",
              f"(what|which) (command|flag|option|argument) (loads|starts|runs|opens|selects) the {REAL}", f"(where|in which folder) do i put the {REAL}",
              f"(loading|running|using|starting) the {REAL}", f"(load|run|start|open) the {REAL}", f"i (want|need|would like|wish|prefer) (the|to use the|to load the|to talk to the|to try the) {REAL}",
              f"how (does one|do people) (load|run|use) the {REAL}", "(what|which) command for the real model", "how is the real model loaded", "you are too (small|tiny|weak|stupid), how do i get the real one",
              "i (have|downloaded|got) (a checkpoint|the weights|the real model), what now", "i have (downloaded|got) the (weights|checkpoint|model), how do i (use|run|load|start) (it|them)",
              "how do i (replace|swap) you (with|for) the real model", "can (you|lily) load the real model", "how does -m work", "what (does|is) -m [do|for]", "how do i tell lily which model to use", "how do i (choose|select|specify|set) the model"]),
    "lily": ("Lily is an inference engine for exactly one model, Qwen3.6-35B-A3B. It is written in Rust, with hand-written Metal kernels as its GPU source.",
             ["inference engine"],
             ["what is lily", "what's lily", "what does lily do", "(tell me|talk|say something|i want to know|teach me) about lily", "(explain|describe|define|summarise|introduce) lily", "(what|which) [kind of|sort of] (program|software|tool|project|app|thing) is (lily|this)",
              "(what|which) is (this program|this software|this tool|this project)", "what is lily (for|about|good for|used for|meant for|made for)", "what (do|can) (people|i|we) use lily for", "(can|could|would) you (explain|describe) (what lily is|lily|this program|the program)", "give me (a summary|an overview|a short description|a definition) of lily",
              "lily", "what does this (program|tool|software) do", "what is the (purpose|point|goal|idea|aim) of (lily|this program|this project)", "(is lily|are you lily, or is lily) (a model|a program|a company|an engine|a person|a framework)", "who or what is lily",
              "in (one|a) sentence, what is lily", "i (just|only) (installed|found|downloaded|heard of) lily, what (is it|does it do)", "(new here|first time here), what is lily", "what did i just install", "what does the name lily stand for", "what should i know about lily"]),
    "language": ("Lily is written in Rust. Its GPU kernels are written in Metal.", ["Rust"],
                 [f"(what|which) [programming] language (is|was) {IT} (made|coded|implemented|built|developed|written) [in|with]", f"(what|which) [programming|computer] language does {IT} use", f"is {IT} (written|made|coded|implemented|programmed) in (python|rust|c|c++|go|java|swift|javascript|zig)",
                  f"what (is|was) {IT} (written|coded|implemented|built|made) (in|with)", f"how (is|was) {IT} (implemented|coded|programmed)", "language of (the|lily's) (code|source|sources)", "what language are the (kernels|gpu kernels|sources) [written in]", f"does {IT} use (rust|python|c++|metal)",
                  "is (the code|lily's code|the source) (rust|python|c++|c)", "(what|which) language do lily's developers (use|write)", "what are the gpu kernels written in"]),
    "formats": ("Lily reads Hugging Face safetensors in bf16, f16 or f32 and MLX quantised directories with 2 to 8 bits.", ["safetensors", "MLX"],
                [f"(what|which) [file|model|weight|checkpoint|data] (formats|format|types|kinds of files) (can|does|will|is|are) {IT} (read|load|support|accept|open|take|know|use|handle)", "(what|which) [file|model|checkpoint|weight] formats (are supported|work|are accepted|are known|are possible|exist|are there)",
                 f"(can|does|will) {IT} (read|load|support|open|accept|take|use|handle) (safetensors|mlx|mlx models|mlx weights|quantised models|quantized models|4 bit models|8-bit weights|hugging face models|huggingface checkpoints|bf16|f16 weights|gguf|fp8)",
                 "(what|which) (kinds|sorts|types) of (checkpoints|models|weights|files) (can i use|can i load|are supported|does lily take|work)", "(what|which) (files|checkpoints|weights|quantisations|quantizations|precisions|data types|dtypes) (can|does) lily (open|read|load|use|support)", "supported (formats|file formats|model formats|checkpoints)",
                 "(does|do) (safetensors|mlx|quantised|quantized) [models|files|checkpoints] work", "how many bits (are supported|can the weights have|may a model have)", "in (what|which) format (must|should|does) the (model|checkpoint|weights) (be|have to be)", "is (mlx|safetensors|gguf) supported", "(what|which) format do i need", "which models from hugging face work"]),
    "memory": ("The real model needs about 20 GB of memory at 4 bits, 37 GB at 8 bits and 72 GB in bf16. `lily inspect -m DIR` shows whether it fits.", ["20 GB"],
               [f"how much (memory|ram|vram|space|gb) (do i need|does it need|is necessary|does it take|will it use|does the real model need|does the 35b model take|does lily use|must i have|is enough|should i have)", f"(what|which) are the [system|hardware|memory|minimum] requirements", "(what|which) (hardware|computer|machine|mac|laptop|pc) (do i need|should i buy|is enough|is needed|would i need|can run it)",
                "will it (run|fit|work) on my (machine|laptop|computer|mac|pc)", "how (big|large|heavy) is the (real|full|35b|actual|big) model", "does (it|the real model|the big model) fit (in|into) [my] (memory|ram|16 gb|32 gb|64 gb|24 GB)", "(is|are) (8|16|24|32|48|64|128) (gb|gigabytes) [of ram|of memory] (enough|sufficient|ok)",
                "what does my (computer|machine|mac) need [to run it]", "(memory|ram|hardware|system) (requirements|needs|usage|footprint)", "how many (gigabytes|gb) (do i need|does it need|does the model take|is the model)", "what size (is|has) the (real|full) model", "can i run (it|the real model) (with|on) (16|32|64|8) gb", "my (mac|laptop|computer) has (16|32|24|64) gb, (is that enough|does it fit|will it run)",
                "does the real model need (a lot of|much) memory", "how much does the 4 bit model need"]),
    "serve": ("Run `lily serve`. It listens on http://127.0.0.1:8000 and speaks the OpenAI API, so any OpenAI client works with the base URL http://127.0.0.1:8000/v1.", ["lily serve", "8000"],
              [f"{HOW} (start|run|launch|open|use|get|set up|reach|call) (the|a|lily's|an|the openai|the http) (server|api|api server|http server|rest api|web server|endpoint)", "is there (an api|a server|a rest api|an http interface|an openai api|a web api|an endpoint)", f"{HOW} (connect|use|attach|point|hook up) (an openai client|my client|the openai library|my editor|the openai sdk|another program|an app) [to lily|with lily|to it]",
               "(what|which) (is the base url|base url do i use|url do i use|address does it listen on|port does lily use|port is it|address is it|url does the server have)", f"{HOW} (serve|host) (the model|lily|it|a model)", "(does|has) lily (have|an|offer|a) (openai compatible api|api|server|openai api)", f"{HOW} use lily (from|in|with) (my editor|python|javascript|a script|my program|node|another app|curl|the openai sdk)",
               "(on|at) (which|what) (port|address|url) does (the server|lily|it) (listen|run|answer)", "does lily (speak|support|have|understand) the openai (api|protocol)", "(which|what) command starts the (server|api)", "(openai|http|web|rest) (api|server|interface)", "can i use (openai's client|the openai python library|curl|an openai client) with lily", "where does the server listen", "what is the (port|url|endpoint|address) [of the (server|api)]"]),
    "commands": ("The commands are chat, serve, bench, eval, inspect, doctor, pull and convert. Each one explains itself with --help.", ["chat", "serve", "inspect"],
                 ["(what|which) [sub]commands (are there|exist|does lily have|can i use|does it know|are available|does lily offer|do i have|are possible)", f"{WHAT} (the|all|all the|lily's available|the available) [sub]commands", "what can lily do on the command line", "(what|which) (verbs|actions|tools|programs) does (lily|the command line|it) have", "[list of] (all commands|commands|subcommands)",
                  "how do i (see|list|find) (the|all) commands", "what can i type after lily", "what else can (lily|the program) do", "what are the (subcommands|commands)", "do you know all the commands", "which commands does the (program|tool|cli) (have|support|offer)", "overview of the commands", "what can i run"]),
    "flags": ("Common flags are -m for the model, --device, --ctx for the context length, --json, --seed and --temp.", ["--ctx", "--seed"],
              ["(what|which) [command line|common|important] (flags|options|switches|arguments|settings) (are there|exist|does lily have|does it take|can i use|are available|does lily take|does lily know|do i have|can i set|matter)", f"{WHAT} (the|all|all the|the most important|the common|the usual|lily's) [command line] (flags|switches|arguments|parameters)", "(list of|all) (flags|options|switches)", "how do i see the (flags|options)",
               "(what|which) (flags|options) (does|do) (lily chat|the commands|the program) (have|take|accept)", "what can i configure [on the command line]", "which command line (flags|options|arguments) exist", "list the options", "common options", "what are the usual flags", "how can i configure lily"]),
    "ctx": ("Use --ctx with the number of tokens, for example `lily chat --ctx 8192`. The real model was made for up to 262144 tokens.", ["--ctx"],
            [f"{HOW} (set|change|raise|enlarge|extend|make|get|use|choose|adjust) (the|a) (longer|larger|bigger|maximum|smaller|) (context|context size|context window|context length)", "how (long|large|many tokens long) (can|may|is|could) the (context|prompt|conversation|input|context window) [be]", "(what|which) is the (maximum|largest|longest|default|biggest) (context|context length|prompt|context window|context size)",
             "how many tokens (of context does it have|can it read|fit|can i use|of context are possible|can the context have)", "what does --ctx (do|mean)", "what is --ctx [for]", "(context|context length|context size|context window)", "my (prompt|text|conversation|input) is too (long|large), what (can|should) i do", "(what|which) (flag|option) (sets|changes|is for|controls) the context [length|size|window]", "the prompt does not fit, what now", "can (it|the model|lily) read long (texts|documents)", "what is the context (limit|window|length)"]),
    "temp": ("Use --temp, for example `lily chat --temp 0.7`. With --temp 0 the answer is always the most likely one.", ["--temp"],
             [f"{HOW} (set|adjust|lower|raise|increase|decrease|reduce|choose|control|pick) the (temperature|sampling temperature|randomness|creativity)", "what (does|is) --temp (do|mean|for)", "what is the (temp|temperature) (flag|option|setting)", f"{HOW} (make|get) (the answers|answers|it|the output|the model) (less random|more random|more creative|less creative|deterministic|greedy|boring|predictable)", f"{HOW} (get|use|do|turn on) (greedy decoding|greedy sampling|greedy answers)",
              "(what|which) (flag|option) (sets|is for|controls|changes) the (temperature|randomness|creativity)", "(temperature|sampling temperature|sampling)", "can i (set|change) the temperature", "your answers are too random, what can i do", "what temperature (is used|should i use|do you use)", "how is the temperature set"]),
    "seed": ("Use --seed with a number. The same seed and the same prompt give the same answer.", ["--seed"],
             [f"{HOW} (set|choose|give|use|pick|change|specify) (the|a|my own) [random] seed", "what (does|is) --seed (do|mean|for)", f"{HOW} (get|have) the same (answer|output|reply|result) (twice|every time|each time|always|on every run)", f"{HOW} make (the output|the answers|it|a run|lily|answers) (reproducible|repeatable|the same every time)", f"{HOW} (repeat|reproduce) an (answer|output|experiment) [exactly]",
              "(what|which) (flag|option) (sets|is for|gives) (the|a) seed", "(random seed|seed)", "(are|is) (the answers|the output|sampling) reproducible", "why is (every|each) answer different", "why do i get (different answers|another answer) every time", "can i (reproduce|repeat) a run"]),
    "device": ("Use --device with auto, metal, cuda, cpu or sim. The CPU works everywhere, and NVIDIA cards do with cuda.", ["--device"],
               [f"{HOW} (choose|pick|set|change|specify) (the|a|another) (device|gpu|processor|backend)", "what (does|is) --device (do|mean|for)", f"{HOW} (run|use|execute) (lily|it|the model) on (the cpu|my gpu|a gpu|the gpu|cuda|metal|an nvidia card|apple silicon)", f"{HOW} (use|enable|turn on) (the gpu|my gpu|my graphics card|cuda|metal|my nvidia card)", "(what|which) (devices|gpus|processors|backends|graphics cards) (are supported|does lily support|can i use|work|are there|does it know)",
                f"(can|does|will) {IT} (use|support|need|work with|run on) (a gpu|an nvidia gpu|nvidia|cuda|metal|amd|apple silicon|the cpu|my graphics card|an m3 mac|windows|linux)", "(gpu|cuda|metal|nvidia|apple) support", "is (cuda|metal|the gpu|nvidia|amd|apple silicon) supported", "do i need a (gpu|graphics card|mac)", "(what|which) (flag|option) (selects|chooses|is for) the (device|gpu)", "i have (an nvidia card|a gpu|an rtx 4090|a macbook), (can|does) lily use it", "can i use (cuda|metal|my gpu|the gpu)", "does lily work without a gpu"]),
    "json": ("With --json the result is printed as JSON on standard output, and the log goes to standard error.", ["JSON"],
             ["what (does|is) --json (do|mean|for)", f"{HOW} (get|print|have|receive|see) (json|machine readable output|the result in json|json output|structured output|a json answer)", "(can|does|could) (lily|it|the program) (print|write|output|give|produce|return) (json|machine readable output)", f"{HOW} use lily in (a script|a shell script|a pipeline|bash)", f"{HOW} parse (the output|lily's output|the answer)", "is there (machine readable output|json output|a json flag|a json mode)", "(json output|json)",
              "(what|which) (flag|option) (gives|prints|is for) json", "where does the log go", "i need the (output|result|answer) as data", "how do scripts read the (answer|output|result)"]),
    "inspect": ("`lily inspect -m DIR` shows the architecture, the quantisation, the size and the memory that a checkpoint needs, and whether it fits this machine.", ["inspect"],
                ["what (does|is) (lily inspect|inspect|the inspect command) (do|for|show)", f"{HOW} (see|look at|find out|show|list) what is (in|inside) (a|the|my) (checkpoint|model|folder|file)", f"{HOW} (find out|see|test|know|tell) (if|whether) (the model|a model|a checkpoint|it|the real model) fits [my machine|in memory|in my ram]", f"{HOW} (look into|examine|inspect|analyse|view) a (model|checkpoint)", "what does the inspect command (show|do|print|tell me)", f"{HOW} (find out|check|know) (if|whether) my (machine|computer|mac) is (big|large|good) enough",
                 "(what|which) command (shows|describes|examines|prints) (a checkpoint|what is in a checkpoint|the architecture|the quantisation of a model)", f"{HOW} (see|find out) (the quantisation|the size|the architecture|how many bits) of a (checkpoint|model)", "(explain|describe) (lily inspect|the inspect command)", "when do i need inspect", "is there a command that shows a model's details"]),
    "doctor": ("`lily doctor` prints what this machine has and which devices Lily can use.", ["doctor"],
               ["what does (lily doctor|doctor|the doctor command) (do|show|print|tell me)", "what is the doctor command [for]", f"{HOW} check my (machine|computer|system|setup|installation|hardware)", "(something|lily|it) (is wrong|does not work|is broken), what can i (run|do|try)", f"{HOW} (diagnose|find|debug) (problems|a problem|what is wrong|issues)", f"{HOW} (see|list|find out) (which devices|what devices|what hardware) (lily can use|i have|this machine has)",
                "(explain|describe) (lily doctor|the doctor command|doctor)", "(which|what) command (checks|examines|shows) my (machine|hardware|system|computer)", "what can i run when something (fails|breaks|is wrong)", "is there a (diagnostic|health check|self test) [command]", "what is doctor [for]", "why would i run doctor"]),
    "bench": ("`lily bench` measures how fast prompts are read and tokens are written on this machine.", ["bench"],
              ["what does (lily bench|bench|the bench command) (do|measure|print|tell me)", "what is (lily bench|the bench command|bench) [for]", f"{HOW} (measure|test|check|see|find out) (the speed|the performance|its speed|tokens per second|lily's speed)", "how fast is (lily|it|this|the program) [on my machine]", f"{HOW} (benchmark|time) (lily|it|my machine|a model)", "(which|what) command (measures|tests|shows) (the speed|the performance|how fast it is)", "(benchmark|speed test|benchmarks)",
               "how many tokens per second (do i get|does it make|does it write|can it do|are there)", "is there a (benchmark|speed test|benchmark command)", "(explain|describe) (lily bench|the bench command)", "how quick is it on my (computer|laptop|mac)", "how do i know how quickly it runs here"]),
    "slash": ("In the chat you can type /reset, /think, /system, /stats and /save. Ctrl-C stops the answer, not the program.", ["/reset"],
              ["(what|which) (slash|chat) commands (are there|exist|does the chat have|are available|does lily chat know)", f"{HOW} (reset|clear|restart|empty) the (chat|history)", f"{HOW} (save|store|keep|export) (the|a|this|my) (chat|conversation)", "what can i type in [the] chat", f"{HOW} (stop|interrupt|cancel|abort|break off) (an answer|the answer|a long answer|generation)", f"{HOW} (start over|begin again|start a new chat|forget everything|begin a new conversation)",
               "(what|which) commands does the chat (have|know|understand)", f"{HOW} (set|change) the system prompt in the chat", "what does /(reset|think|system|stats|save) do", "(slash commands|commands in the chat)", f"{HOW} see (statistics|stats|the speed) in the chat", "what do i press to stop (it|an answer|you)", "(is there|do you have) a reset command", "which commands start with a slash"]),
    "model": ("Qwen3.6-35B-A3B has 35 billion parameters, of which about 3 billion are active for a token. It has 40 layers and 256 experts, 8 of them active.", ["35 billion"],
              ["what is qwen3.6-35b-a3b", "(tell me|say something) about (the real model|qwen3.6|qwen3.6-35b-a3b|the big model|qwen)", "how many (parameters|weights) (does the (real|big|full|35b) model have|does qwen have|are in the real model|are active|does qwen3.6 have)", "what is the real model", "how many (experts|layers) does (it|the real model|qwen|the model) have", "(which|what) model (does lily run|is lily for|does lily support|can it run|is the real model|is it made for|is supported)", "(can|does|will) lily (run|load|support) (other|any other|different|more|llama|mistral|gemma|deepseek) models",
               "how many (experts|parameters) are active", "how (big|large) is qwen", "what does (35b|a3b) mean", "(describe|explain) (the real model|qwen3.6|qwen3.6-35b-a3b)", "the real model, what is it", "what is qwen", "number of (parameters|experts|layers) of the real model", "which models are supported", "is it only for qwen"]),
    "layers": ("Three of four layers are Gated DeltaNet and every fourth is gated attention: 30 and 10 of the 40 layers.", ["DeltaNet"],
               ["(what|which) is the architecture [of the (model|real model|35b)|of qwen3.6|of the network]", "(which|what) [kind of|types of] layers (does the model have|are there|does it have|does qwen3.6 use|has the model)", "does (it|the model|the real model|qwen) (use|have|need) [full|linear|gated] attention", "what is [gated] deltanet [for]", "how is the (model|real model|network) (built|made|structured|put together|organised|constructed)", "is it a (mixture of experts|transformer|recurrent network|moe|linear attention model|hybrid)", "(explain|describe) the (architecture|layers|structure of the model)",
                "what is gated deltanet", "how many (attention|deltanet|linear|full attention) layers (are there|does it have)", "is there (attention|deltanet|linear attention) in (it|the model)", "what are its layers", "architecture", "how does the network work"]),
    "small": ("I am tiny, with a few million parameters. I can chat about Lily, add small numbers, call tools and find facts in a text. For anything else load the real model.", ["load the real model"],
              ["what can you do", "what (are you good at|are you good for|do you know|are you for|are you useful for|is your purpose|can i ask you|can i do with you|can you help [me] with|do you do|are your skills|are your abilities|are your limits|are your strengths|can you not do|else can you do|should i ask you)", "(can|could|will|would) you help [me]", "how (smart|clever|good|intelligent|capable|large|big|small) are you", "why do you know so little", "why are you so (small|stupid|bad|limited|dumb|tiny|weak)", "how many (parameters|weights) do you have", "what (tasks|things|questions|work) can you (do|answer|handle)", "(help|help me|i need help|i need your help|help please|can you help)",
               "(list|name|show|tell me) your (skills|abilities|talents|capabilities)", "are you (smart|clever|useful|any good|intelligent|good at anything|limited)", "what is your size", "do you know (everything|anything|a lot|much)", "what kind of (things|questions) can i ask", "give me an example of what you can do", "show me what you can do", "your (capabilities|skills|abilities)", "is there anything you can do"]),
    "licence": ("Lily is free software under the MIT or the Apache-2.0 licence, as you like.", ["MIT"],
                [f"(what|which) (is the|is its|is lily's) (licence|license)", "(what|which) (licence|license) (does lily have|does it have|does lily use|applies|is used|has lily)", f"is {IT} (free|open source|free software|proprietary|commercial|gratis|open-source|mit licensed)", "(can|may) i (use|sell|modify|copy|share|fork|change) (lily|it) [commercially|at work|in my company|in my product]", "under (which|what) (licence|license) is (it|lily) [released|published|distributed]", "(licence|license|licensing|copyright)", "(does|do) (lily|it|i) (cost|have to pay|cost money|need a licence)", "how is lily licensed", "do i have to pay (for|to use) lily", "who owns the code", "is the source (available|open|public)", "what does lily cost", "may i use it at work"]),
    "network": ("I am built into the program and work without a network. Only downloading a checkpoint needs one.", ["network"],
                ["do you need (the internet|a network|internet|to be online|a connection|wifi|the cloud)", f"(does|will|can) {IT} (work|run) (offline|without a network|without the internet|on a plane|without wifi)", "(is|are) my (data|chats|texts|messages|prompts|conversations|questions) (sent anywhere|private|safe|uploaded|stored|sent to a server|shared|secret)", "do you (send|upload|share|store|keep) my (chats|data|messages|questions|text) [anywhere]", "is this (private|local|offline|secure|safe)", "(are|is) (you|it|this) (running|run) (locally|offline|on my machine|in the cloud|on a server)", "where (do you|does this|does it) run", "does (lily|this) (phone home|send telemetry|connect to the internet|use the cloud|collect data)",
                 "(offline|privacy|telemetry)", "can i use (you|lily|it) offline", "what happens (to|with) my data", "must i be online", "who can read my (chats|messages)", "is there (telemetry|tracking)", "are you local"]),
    "thinking": ("By default I think before I answer. Use --think off, or /think in the chat, to turn that off.", ["think"],
                 [f"{HOW} (turn off|disable|switch off|stop|skip|turn on|enable|hide|suppress|deactivate) [the|your] (thinking|reasoning|thoughts)", "why do you (think|reason) (first|before you answer|so long|before answering|at all)", "(can|could) you answer without (thinking|reasoning)", "what is [the] (thinking mode|thinking|reasoning mode)", "(what|which) (flag|option|command) (turns off|disables|is for|controls|stops) (thinking|the thinking|reasoning)", "what does --think do", "(stop|don't|do not) (thinking|think|reason)", "i (do not|don't) want (you to think|the thinking|to see your thoughts|thinking)", "do you think before you answer", "what is --think [for]", "(thinking|reasoning) (off|on)", "the thinking is (slow|annoying), can i turn it off", "no thinking please, how"]),
    "tools": ("Yes. When a client offers tools through the API, the model can call them, several in one turn, and use the results.", ["tools"],
              ["(can|could|do|will) you (call|handle|work with|invoke|run) (tools|functions|my tools|external tools)", "(does|can|will) lily (support|have|do|offer|handle|allow) (tool calls|function calling|tool calling|tools|tool use|functions)", "(can|may|how do) i (give|offer|pass|send) you (tools|functions|a tool)", "do (tools|functions|tool calls) work", "(is|are) (tool calling|tool use|tools|tool calls|parallel tool calls) (possible|available|supported|there)", "how do (tools|tool calls|functions) work", "what about (tools|function calls|tool calls|functions)", "(tool calls|function calling|tools)", "can (the model|it|you) call (functions|several tools|more than one tool)", "how do i (use|define|add) (tools|functions)", "are you able to call functions"]),
    "speed": ("Lily is fast because it knows its one model and its chip: no general framework stands between them.", ["one model"],
              ["why is (lily|it) (so |)(fast|quick|speedy|efficient)", "why (does lily support|does it run|is there|support) only one model", "(how|in what way) (is lily|does lily) (different|differ|special|better) [from (llama.cpp|mlx|ollama|vllm|other engines|others|transformers)]", "why should i (use|choose|try|prefer) lily", "what is (special|different|new|better) (about|in) lily", "(lily or|why not|compared to|compare lily with|is it better than|is lily faster than) (llama.cpp|ollama|vllm|mlx|transformers)", "what is the (advantage|benefit) of [using] lily", "(why|how come) lily is fast", "why only (qwen|this model|one)", "what are lily's (advantages|strengths)", "how does lily (get|reach|achieve) (its|such) speed"]),
    "maker": ("Lily's authors trained me for this program, on one GPU and on conversations that their scripts invented.", ["trained"],
              ["who (made|created|built|trained|programmed|developed|wrote|designed|invented) (you|this model|the demo)", "(where|how) (do you come from|were you made|were you trained|were you created|did you learn this)", "who (is|are) your (maker|creator|author|authors|developer|developers|parents|makers)", "what (data|text) were you trained on", "what is your training data", "how (long|many tokens) were you trained [on|for]", "(which|what) company (made|built|trained) you", "where did you (learn|get your knowledge)", "are you (made by|from) (openai|google|alibaba|anthropic|meta)", "who do you belong to", "how did they train you", "your (creator|maker|author)"]),
    "download": ("Download a checkpoint with `hf download ORG/NAME --local-dir DIR`, then run `lily chat -m DIR`.", ["hf download"],
                 ["(where|how) (do|can|could) i (download|fetch|obtain) (the (real|big|full|35b) model|a checkpoint|the weights|the model|weights)", "(where|how) do i get (the weights|a checkpoint|the checkpoint)", "(what|which) command downloads (the model|a checkpoint|the weights)", "where are the weights", "(can|does) lily download (models|the model|weights|checkpoints)", "(download|downloading) (the model|the weights|a checkpoint)", "i have no (weights|checkpoint|model) yet, where do i get (it|them|one)", "is there a download link", "from where can i download qwen"]),
}

HELD_OUT = {
    "self": ["so what exactly are you?", "hey, who is this?", "please tell me who you are", "what sort of ai are you"],
    "load": ["how would i load the actual model", "i want to run the real model, how?", "what is the command to load the real model",
             "please explain how to load the full 35b model"],
    "lily": ["could you tell me what lily is", "what exactly is lily", "i have never heard of lily, what is it"],
    "language": ["in which language was lily written", "what language is it programmed in"],
    "formats": ["what checkpoint formats can i load", "does lily read mlx checkpoints", "which formats does it understand"],
    "memory": ["how much memory is needed for the real model", "how much ram should my machine have", "what hardware is required"],
    "serve": ["how can i start an api server", "how do i point my openai client at lily", "what's the base url of the api"],
    "commands": ["which commands can i run", "what are lily's commands"],
    "flags": ["what are the options", "which flags can i pass"],
    "ctx": ["how can i increase the context length", "how big can the context get"],
    "temp": ["how can i change the temperature", "where do i set the temperature"],
    "seed": ["how do i fix the seed", "is there a way to get the same answer again"],
    "device": ["can it run on my gpu", "how do i select the cpu", "does it run on a mac"],
    "json": ["how can i get output as json"],
    "inspect": ["how can i check whether a model fits", "what is lily inspect"],
    "doctor": ["what is lily doctor"],
    "bench": ["how can i measure how fast it is"],
    "slash": ["how can i reset the conversation", "what slash commands can i type"],
    "model": ["how many parameters has the real model", "what model can lily run", "how many experts are there"],
    "layers": ["what does the architecture look like"],
    "small": ["what are you able to do", "so what can you do for me"],
    "licence": ["what license is lily under", "is it open source"],
    "network": ["do i need an internet connection", "does it work without internet"],
    "thinking": ["how can i turn thinking off"],
    "tools": ["can you use tools", "is function calling supported"],
    "speed": ["what makes lily fast"],
}

PAIRS = [("self", "load"), ("lily", "load"), ("self", "small"), ("lily", "memory"), ("self", "load"), ("memory", "load"), ("small", "load"), ("lily", "serve")]
BEFORE = ["", "", "", "", "", "please tell me, ", "hey, ", "hi, ", "ok, ", "i'd like to know: ", "quick question: ", "can you tell me, ", "hello! ", "one question: ", "sorry, ", "so, ", "now, ", "and ",
          "hello, ", "good morning, ", "a question: ", "i wonder, ", "excuse me, ", "just curious, ", "well, ", "hmm, ", "first, ", "thanks. ", "i have a question: ", "next: "]
AFTER = ["", "", "", "?", "?", "?", ".", "!", " please?", ", please", " please", " exactly?", "??", " then?", " in short?", " ?", "...", " thanks", "? thanks", " briefly?", "? be brief", "? i am new here", " :)"]
SHOWN = (("lily", "Lily"), (" i ", " I "), ("gpu", "GPU"), ("json", "JSON"), ("api", "API"), ("openai", "OpenAI"), ("mlx", "MLX"), ("ram", "RAM"), ("cpu", "CPU"), ("qwen", "Qwen"), ("gb", "GB"))


def mistype(rng, text):
    """One typing error."""
    at = rng.randrange(1, len(text))
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at - 1] + text[at:]
    if kind == 1:
        return text[:at] + text[at - 1] + text[at:]
    return text[:at - 1] + text[at:at + 1] + text[at - 1] + text[at + 1:]


def dress(rng, question):
    """The same question as different people type it."""
    if rng.random() < 0.25:
        text = question + rng.choice(["", "?"])
    else:
        text = rng.choice(BEFORE) + question + rng.choice(AFTER)
    style = rng.randrange(8)
    if style < 4:
        text = text[0].upper() + text[1:]
    elif style == 4:
        text = text.upper() if rng.random() < 0.2 else text.title() if rng.random() < 0.2 else text
    for word, shown in SHOWN:
        if rng.random() < 0.5:
            text = text.replace(word, shown)
    return mistype(rng, text) if rng.random() < 0.08 else text


def thought(topic):
    return {"self": "The user asks who I am.", "small": "The user asks what I can do."}.get(topic, f"The user asks about Lily: {topic}. I know this.")


def ask(rng, topic):
    return grammar.wording(rng, TOPICS[topic][2])


def example(rng):
    """(question, answer, reasoning)"""
    topic = rng.choice(list(TOPICS))
    if rng.random() < 0.25:
        topic = rng.choice(["self", "load", "lily", "memory", "formats", "small"])
    if rng.random() < 0.2:  # two questions in one
        other = rng.choice([t for t in TOPICS if t != topic])
        if rng.random() < 0.5:
            topic, other = rng.choice(PAIRS)
        question = ask(rng, topic) + rng.choice([", and ", " and ", "? ", "? And ", ". Also, ", "? also ", "? and also, ", ", then ", "\n"]) + ask(rng, other)
        return dress(rng, question), f"{TOPICS[topic][0]} {TOPICS[other][0]}", f"Two questions: {topic} and {other}."
    while True:
        question = dress(rng, ask(rng, topic))
        if not grammar.too_close(question):
            return question, TOPICS[topic][0], thought(topic)


if __name__ == "__main__":
    r = random.Random(0)
    for _ in range(40):
        print(example(r))
